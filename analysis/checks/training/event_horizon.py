"""Did the trial last longer than random events were drawn for?"""

from analysis.checks.verdict import Verdict, degraded, valid
from analysis.reading.run_table import TrialTable


def event_horizon(trial: TrialTable) -> Verdict:
    """Degraded when its end lies beyond the horizon: from there on nothing happened any more."""
    horizon_s = trial.plan.horizon_s
    if horizon_s is None:
        return valid("no event is at a random moment")
    if trial.seconds is None or trial.seconds <= horizon_s:
        return valid(f"random events were drawn for {horizon_s:.3g} s")
    return degraded(f"it took {trial.seconds:.3g} s, and random events were drawn for {horizon_s:.3g} s only")
