"""Conflicts: contradictions between fields of a record, each reported at the key to change."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

KeyPath = tuple[str | int, ...]  # keys and list positions, outermost first


class KeyConflict(NamedTuple):
    """Contradiction between fields of a record, reported at the key to change.

    The report says what is wrong, and what is allowed.
    """

    key_path: KeyPath  # of the key to change, relative to the record that found the conflict
    message: str  # what is wrong, and what is allowed


class ScenarioKeyConflictError(ValueError):
    """Error that contains all conflicts between the fields of one record.

    Pydantic stores it as the cause of a validation error.
    """

    def __init__(self, conflicts: tuple[KeyConflict, ...]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, key_path))}: {message}" for key_path, message in conflicts))
        self.conflicts = conflicts


def raise_conflicts(conflicts: Iterable[KeyConflict]) -> None:
    """Raise a ScenarioKeyConflictError with all conflicts; do nothing if there are none."""
    if found := tuple(conflicts):
        raise ScenarioKeyConflictError(found)


def prepend_parent_key(parent_key: str | int, conflicts: Iterable[KeyConflict]) -> Iterator[KeyConflict]:
    """Yield the conflicts of a nested record, with full key paths.

    The key of the nested record is added in front of each key path.
    """
    return (KeyConflict((parent_key, *key_path), message) for key_path, message in conflicts)
