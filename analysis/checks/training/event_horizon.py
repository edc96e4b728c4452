"""Check that random events were drawn for the whole duration of the trial."""

from analysis.checks.verdict import CheckVerdict, degraded_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_events_cover_trial(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if random events were drawn for less than the trial's duration."""
    horizon_s = trial.plan.horizon_s
    if horizon_s is None:
        return valid_verdict("no event has a random time")
    if trial.seconds is None or trial.seconds <= horizon_s:
        return valid_verdict(f"random events were drawn for {horizon_s:.3g} s")
    return degraded_verdict(
        f"the trial took {trial.seconds:.3g} s, but random events were drawn only for its first {horizon_s:.3g} s"
    )
