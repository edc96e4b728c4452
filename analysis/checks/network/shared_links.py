"""Are links that many nodes share as fast as declared?"""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.checks.evidence import shaped_by_kernel
from analysis.checks.verdict import LINKS, Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable

READ_BACK = "read back"


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
    if not shaped_by_kernel(trial) or not trial.plan.network.pipes:
        return valid("no link is shared, or our own code shares it")
    found = list(pipe_rates(trial))
    errors = {pipe.name: pipe.error for pipe in found if pipe.error is not None}
    limit = trial.plan.fidelity.rate_error
    worst = max(errors, key=lambda name: abs(errors[name]), default=None)
    if worst and abs(errors[worst]) > limit:
        return invalid(f"{worst} is {errors[worst]:+.1%} off its declared rate (limit {limit:.0%})", LINKS)
    if unknown := [pipe.name for pipe in found if pipe.error is None]:
        return degraded(f"{', '.join(unknown)}: the shared rate was not verified")
    told = f"{len(found)} shared links within {max(map(abs, errors.values())):.1%} of what is declared"
    told_only = sum(pipe.how == READ_BACK for pipe in found)
    return valid(f"{told}, {told_only} of them only as the kernel tells it" if told_only else told)


def pipe_rates(trial: TrialTable) -> Iterator[PipeRate]:
    """Every pipe of the plan, with the strongest evidence that any node's record has."""
    shaping = (trial.status.get("shaping") or {}).values()
    probed = {name: rate for shaped in shaping for name, rate in (shaped.get("achieved_pipes_bps") or {}).items()}
    read_back = {name: rate["achieved"] for shaped in shaping for name, rate in (shaped.get("pipes_bps") or {}).items()}
    for pipe in trial.plan.network.pipes:
        achieved = probed.get(pipe.name, read_back.get(pipe.name))
        how = "probed with flows" if pipe.name in probed else READ_BACK if pipe.name in read_back else "not at all"
        yield PipeRate(pipe.name, pipe.rate_bps, achieved, how)
