"""What is wrong with a scenario file, and where?"""

from collections.abc import Iterable
from typing import NamedTuple

from services.errors import UserError


class Problem(NamedTuple):
    """One thing for the user to change."""

    place: str  # such as "scenarios/quickstart.yaml:12"
    key: str  # dotted path; empty when the file as a whole is meant
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in self if part)


class BadScenario(UserError):  # noqa: N818 - the tree of errors names conditions
    """Everything that is wrong with one scenario, at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))  # the same one may be found on several ways
        super().__init__("\n".join(map(str, self.problems)))
