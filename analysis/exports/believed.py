"""May an exported trial be believed? As the report judges it: no tool should take a disturbed one for sound."""

from dataclasses import dataclass
from typing import Self

from analysis.checks import Level, fidelity, worst
from analysis.reading.run_table import TrialTable


@dataclass(frozen=True)
class Believed:
    """The verdict on a trial."""

    trial: str
    level: Level
    reasons: tuple[str, ...]  # none where it is valid

    @classmethod
    def of(cls, trial: TrialTable) -> Self:
        """By all checks."""
        verdicts = fidelity.judge(trial).values()
        reasons = tuple(verdict.reason for verdict in verdicts if verdict.level != Level.VALID)
        return cls(trial.plan.trial, worst(verdicts), reasons)

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against it."""
        return self.level == Level.VALID

    def __str__(self) -> str:
        return f"{self.level}: {'; '.join(self.reasons)}" if self.reasons else self.level
