"""Records of the endurance benchmark: a row has lines, each with a result and its limit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from services.schema.component import FrozenRecord


class ResultLine(FrozenRecord):
    """One result of a row."""

    what: str
    result: str
    limit: str = "–"  # without a limit, the result is only shown
    is_met: bool = True


class RowOutcome(FrozenRecord):
    """Results of a row, or the reason why it failed."""

    row: str
    commit: str  # abbreviated, of the checkout that was measured
    date: str  # UTC
    lines: tuple[ResultLine, ...] = ()
    failed: str = ""  # error message; empty if the row was measured
    wall_s: int = 0

    @property
    def is_met(self) -> bool:
        """Whether the row was measured and all its limits are met."""
        return not self.failed and all(line.is_met for line in self.lines)


@dataclass(frozen=True)
class RowContext:
    """Folders of a row: one for its runs, and one in which its results are saved."""

    folder: Path
    state_folder: Path


@dataclass(frozen=True)
class BenchmarkRow:
    """Subject that the benchmark measures."""

    title: str
    measure: Callable[[RowContext], Iterable[ResultLine]]
