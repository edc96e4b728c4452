"""Paths in messages."""

from pathlib import Path


def path_for_messages(path: Path) -> str:
    """Return a path in the form for messages: relative to the current folder if it is inside that folder."""
    absolute_path, current_folder = path.resolve(), Path.cwd()
    if absolute_path.is_relative_to(current_folder):
        return str(absolute_path.relative_to(current_folder))
    return str(path)
