"""May an exported trial be believed? As the report judges it: no tool should take a disturbed one for sound."""

from dataclasses import dataclass
from typing import Self

from analysis.checks import VerdictLevel, fidelity, worst_verdict_level
from analysis.reading.run_table import TrialTable


@dataclass(frozen=True)
class Believed:
    """The verdict on a trial."""

    trial: str
    level: VerdictLevel
    reasons: tuple[str, ...]  # none where it is valid

    @classmethod
    def of(cls, trial: TrialTable) -> Self:
        """By all checks."""
        verdicts = fidelity.judge_trial(trial).values()
        reasons = tuple(verdict.reason for verdict in verdicts if verdict.level != VerdictLevel.VALID)
        return cls(trial.plan.trial, worst_verdict_level(verdicts), reasons)

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against it."""
        return self.level == VerdictLevel.VALID

    def __str__(self) -> str:
        return f"{self.level}: {'; '.join(self.reasons)}" if self.reasons else self.level
