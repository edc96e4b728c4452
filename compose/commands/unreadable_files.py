"""Files of a user's command that containers can't read, because they run as another user."""

import os
from collections.abc import Iterator
from pathlib import Path

from compose.host.host_facts import container_user
from services.commands.working_folder import MAX_COPIED_BYTES
from services.scenario.commands.command_workload import CommandWorkload
from services.schema.message_paths import path_for_messages

FILE_BITS, FOLDER_BITS = 0o004, 0o005  # rights of all users that reading needs


def explain_unreadable_file(workload: CommandWorkload) -> str:
    """Return which file or folder of a command containers can't read, and the remedy; empty if they can read all.

    Files that the command may not need are left out: large ones, and those in sub-folders without Python files.
    """
    if container_user() == f"{os.getuid()}:{os.getgid()}":
        return ""
    path = next(_unreadable_paths(Path(workload.folder), workload.code_folder), None)
    if path is None:
        return ""
    rights = "o+rx" if path.is_dir() else "o+r"
    return (
        f"{path_for_messages(path)}: containers run as another user, which can't read it; run: chmod {rights}, or put "
        "the script into a folder of its own, without this file"
    )


def _unreadable_paths(folder: Path, code_folder: Path | None) -> Iterator[Path]:
    """Yield what can't be read, of all that is copied into the working folder of the command."""
    if not folder.is_dir():  # removed since the scenario was loaded: the engine reports it
        return
    if folder.stat().st_mode & FOLDER_BITS != FOLDER_BITS:
        yield folder
    for path in sorted(folder.iterdir()):
        recorded = code_folder and code_folder / path.name
        if recorded and recorded.is_dir() and path.is_dir():
            yield from _unreadable_paths(path, recorded)
        elif path.is_file() and not (path.suffix == ".py" and code_folder):
            status = path.stat()
            if status.st_size <= MAX_COPIED_BYTES and not status.st_mode & FILE_BITS:
                yield path
