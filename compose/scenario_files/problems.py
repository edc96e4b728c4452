"""Problems in a scenario file, and the error that reports all of them at once.

Each problem has a position in the file.
"""

from collections.abc import Iterable
from typing import NamedTuple

from services.schema.errors import UserError


class SourcePosition(NamedTuple):
    """Position where a key of a scenario was set: a line of a file, or an argument of the command line."""

    file: str  # path, or text of the argument
    line: int = 0  # 0: the whole file, or an argument

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class ScenarioProblem(NamedTuple):
    """One mistake in a scenario, which the user has to correct."""

    position: SourcePosition
    key: str  # dotted path; empty for the whole file
    message: str  # what is wrong, and what is allowed

    def __str__(self) -> str:
        return ": ".join(str(part) for part in self if part)


LATER_CHECKS_TEXT = "Not all checks have run yet. Correct the above, then check again: there may be further problems."


class ScenarioError(UserError):
    """Error for a scenario that is not valid.

    The message has one line for each problem, in the order of the file.
    """

    def __init__(self, problems: Iterable[ScenarioProblem], *, later_checks_skipped: bool = True) -> None:
        """Create the error for all problems that one stage of the checks has found.

        With `later_checks_skipped`, the last line of the message says that later checks have not run.
        """
        self.problems = tuple(sorted(set(problems)))
        lines = [*map(str, self.problems), *([LATER_CHECKS_TEXT] if later_checks_skipped else [])]
        super().__init__("\n".join(lines))


class SkippedScenarioError(UserError):
    """Error for a scenario that can't be planned here: packages are missing, and it is skipped without them."""
