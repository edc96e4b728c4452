"""Symbolic links that lead out of a folder: writing through such a link changes a file somewhere else."""

import os
from collections.abc import Iterator
from pathlib import Path

from services.schema.errors import UserError


def check_has_no_outward_links(folder: Path) -> None:
    """Check that no symbolic link in a folder, or in its sub-folders, leads out of the folder.

    Raises:
        UserError: a link leads out, or its target can't be found out.
    """
    root = folder.resolve()
    for link in _find_links(folder):
        try:
            target = link.resolve()
        except (OSError, RuntimeError):  # a loop of links
            raise UserError(f"{link}: a symbolic link without a target; remove the link") from None
        if not target.is_relative_to(root):
            raise UserError(
                f"{link}: a symbolic link to {target}, outside of the run folder; files of a run are written to its "
                "folder only, so remove the link, or copy the file"
            )


def _find_links(folder: Path) -> Iterator[Path]:
    for parent, folder_names, file_names in os.walk(folder):
        for name in (*folder_names, *file_names):
            if (path := Path(parent, name)).is_symlink():
                yield path
