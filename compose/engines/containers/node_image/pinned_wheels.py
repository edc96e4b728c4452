"""Hashes of the wheels in a node image, in the format of pip's requirements files.

They are written when the wheels are downloaded, compared before each build, and given to pip in the build, which then
installs nothing else. The image keeps the file: it is the list of its Python packages with their hashes.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from packaging.utils import parse_wheel_filename

PINS_FILE = "requirements.txt"
INSTALLER = "pip"  # runs from its wheel, and is not installed


class PinnedWheel(NamedTuple):
    """One line of a requirements file."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


def write_pins(wheels_folder: Path) -> None:
    """Write the hashes of the wheels in a folder to its file `PINS_FILE`."""
    pins = map(str, _hash_wheels(wheels_folder))
    (wheels_folder / PINS_FILE).write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")


def are_wheels_as_pinned(wheels_folder: Path) -> bool:
    """Return whether a folder has the wheels that were downloaded, and no others."""
    try:
        text = (wheels_folder / PINS_FILE).read_text(encoding="utf-8")
    except OSError:
        return False
    return text.splitlines() == [str(pin) for pin in _hash_wheels(wheels_folder)]


def parse_pins(text: str) -> list[PinnedWheel]:
    """Return the wheels in the text of a requirements file that `write_pins` has written."""
    return [PinnedWheel(*re.split(r"==| --hash=sha256:", line, maxsplit=2)) for line in text.splitlines()]


def _hash_wheels(wheels_folder: Path) -> Iterator[PinnedWheel]:
    """Yield the wheels of a folder in the order of their names; the installer is not in the requirements."""
    for path in sorted(wheels_folder.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(path.name)
        if name != INSTALLER:
            yield PinnedWheel(name, str(version), sha256(path.read_bytes()).hexdigest())
