"""Verdict on an exported trial, with the reasons for the verdict.

The verdict is the same as in the report.
"""

from dataclasses import dataclass
from typing import Self

from analysis.checks import VerdictLevel, fidelity, worst_verdict_level
from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class TrialValidityVerdict:
    """Verdict on one trial: valid, degraded or invalid, with the reasons for the verdict."""

    trial_name: str
    level: VerdictLevel
    reasons: tuple[str, ...]  # empty where the trial is valid

    @classmethod
    def from_checking_trial(cls, trial: TrialLogTables) -> Self:
        """Run all checks on a trial.

        Return the worst verdict level, and the reason of every check that failed.
        """
        verdicts = fidelity.run_trial_checks(trial).values()
        reasons = tuple(verdict.reason for verdict in verdicts if verdict.level != VerdictLevel.VALID)
        return cls(trial.plan.trial, worst_verdict_level(verdicts), reasons)

    @property
    def is_valid(self) -> bool:
        """Whether the trial passed all checks."""
        return self.level == VerdictLevel.VALID

    def __str__(self) -> str:
        return f"{self.level}: {'; '.join(self.reasons)}" if self.reasons else self.level
