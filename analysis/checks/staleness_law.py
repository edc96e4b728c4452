"""Is staleness what theory says?"""

from analysis.checks.verdict import Verdict, valid
from analysis.metrics.staleness import staleness
from analysis.table import TrialTable


def staleness_law(trial: TrialTable) -> Verdict:
    """Reports the mean beside n - 1, where n equal workers that never wait end up; reported, not judged.

    Unequal speeds, few updates and slow links all move it for good reasons.
    """
    ages = staleness(trial)
    if ages is None or (trial.plan.synchrony == "synchronous" and trial.plan.after is None):
        return valid("no gradient is stale")
    if trial.plan.after:
        return valid(f"mean staleness {ages['mean']:.2f} over all updates of both strategies")
    if trial.plan.kind_of_synchrony != "asp":
        return valid(f"mean staleness {ages['mean']:.2f}, at most {ages['max']}, under {trial.plan.kind_of_synchrony}")
    return valid(f"mean staleness {ages['mean']:.2f} where {trial.plan.workers - 1} is expected of equal workers")
