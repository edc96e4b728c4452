"""Are links that many nodes share as fast as declared?"""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.table import TrialTable


class PipeRate(NamedTuple):
    """A shared limit; virtual bit/s."""

    name: str
    declared_bps: float
    achieved_bps: float | None  # None: nobody knows
    how: str  # probed, read back, not at all

    @property
    def error(self) -> float | None:
        """Relative."""
        return None if self.achieved_bps is None else self.achieved_bps / self.declared_bps - 1


def pipes(trial: TrialTable) -> Verdict:
    """Compares floods through each pipe, else what its shaping reads back, with the plan.

    Invalid beyond the threshold, degraded where neither is known.
    """
    if trial.status.get("engine") != "docker" or not trial.plan.network.pipes:
        return valid("no link is shared, or our own code shares it")
    found = list(pipe_rates(trial))
    errors = {pipe.name: pipe.error for pipe in found if pipe.error is not None}
    limit = trial.plan.fidelity.rate_error
    worst = max(errors, key=lambda name: abs(errors[name]), default=None)
    if worst and abs(errors[worst]) > limit:
        return invalid(f"{worst} is {errors[worst]:+.1%} off its declared rate (limit {limit:.0%})")
    if unknown := [pipe.name for pipe in found if pipe.error is None]:
        return degraded(f"{', '.join(unknown)}: the shared rate was not verified")
    return valid(f"{len(found)} shared links within {max(map(abs, errors.values())):.1%} of what is declared")


def pipe_rates(trial: TrialTable) -> Iterator[PipeRate]:
    """Every pipe of the plan, with the strongest evidence that any node's record has."""
    shaping = (trial.status.get("shaping") or {}).values()
    probed = {name: rate for shaped in shaping for name, rate in (shaped.get("achieved_pipes_bps") or {}).items()}
    read_back = {name: rate["achieved"] for shaped in shaping for name, rate in (shaped.get("pipes_bps") or {}).items()}
    for pipe in trial.plan.network.pipes:
        achieved = probed.get(pipe.name, read_back.get(pipe.name))
        how = "probed with flows" if pipe.name in probed else "read back" if pipe.name in read_back else "not at all"
        yield PipeRate(pipe.name, pipe.rate_bps, achieved, how)
