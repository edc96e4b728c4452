"""What is wrong with a scenario file, and where?"""

from collections.abc import Iterable
from typing import NamedTuple

from services.schema.errors import UserError


class Place(NamedTuple):
    """Where something was written."""

    file: str
    line: int = 0  # 0: the file as a whole, or an argument

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Problem(NamedTuple):
    """One thing for the user to change."""

    place: Place
    key: str  # dotted path; empty when the file as a whole is meant
    message: str

    def __str__(self) -> str:
        return ": ".join(str(part) for part in self if part)


class BadScenario(UserError):
    """Everything that is wrong with one scenario, at once, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))
