"""How do fields that contradict each other say so, each at its own key?"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Path = tuple[str | int, ...]  # keys and list positions, outermost first


class Conflict(NamedTuple):
    """One contradiction."""

    path: Path  # the key to change, seen from the record that checks
    message: str  # what is wrong, and what is allowed


class Conflicts(ValueError):
    """All contradictions of one record; pydantic passes it on as the cause of its validation error."""

    def __init__(self, conflicts: tuple[Conflict, ...]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, path))}: {message}" for path, message in conflicts))
        self.conflicts = conflicts


def refuse(conflicts: Iterable[Conflict]) -> None:
    """Raise what there is to raise; a validator's last word."""
    if found := tuple(conflicts):
        raise Conflicts(found)


def nested(key: str | int, conflicts: Iterable[Conflict]) -> Iterator[Conflict]:
    """Yield the conflicts of the record at `key`, seen from the record that holds it."""
    return (Conflict((key, *path), message) for path, message in conflicts)
