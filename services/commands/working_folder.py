"""Working folder of a user's command: private to its process, with the recorded Python files."""

import shutil
from pathlib import Path

MAX_COPIED_BYTES = 1 << 20
SCRIPT_MODE = 0o755  # the copies of the record are read-only


def prepare_command_folder(folder: Path, code_folder: Path | None, scratch_folder: Path) -> None:
    """Fill the current folder of a command with its files, so that what it writes is private to its process.

    Python files are those that were recorded when the scenario was loaded, even if the user has edited them since.
    Other files of up to MAX_COPIED_BYTES are copied as they are now. Larger files, and sub-folders without Python
    files, are links: writes through a link change the original, where it is writable.

    Args:
        folder: folder of the command.
        code_folder: record of the Python files in it; None if it has none.
        scratch_folder: empty folder to fill.
    """
    for path in folder.iterdir():
        recorded, target = code_folder and code_folder / path.name, scratch_folder / path.name
        if recorded and recorded.is_dir() and path.is_dir():
            target.mkdir()
            prepare_command_folder(path, recorded, target)
        elif path.is_file() and path.suffix == ".py" and code_folder:
            continue  # copied from the record, or added since
        elif path.is_file() and path.stat().st_size <= MAX_COPIED_BYTES:
            shutil.copy(path, target)
        else:
            target.symlink_to(path)
    if code_folder:
        _copy_recorded_files(code_folder, scratch_folder)


def _copy_recorded_files(code_folder: Path, scratch_folder: Path) -> None:
    for path in code_folder.iterdir():
        target = scratch_folder / path.name
        if path.is_file():
            shutil.copyfile(path, target)
            target.chmod(SCRIPT_MODE)
        elif not target.exists():  # the user has removed the folder since
            target.mkdir()
            _copy_recorded_files(path, target)
