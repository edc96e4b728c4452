"""How long should a step take?"""

from analysis.phases import phases
from analysis.table import TrialTable


def predicted_step_s(trial: TrialTable) -> float | None:
    """The closed form's step; of two strategies that of each, weighted by the steps that were done under it."""
    told = [(phase.predicted.median_step_s, len(phase.steps)) for phase in phases(trial)]
    steps = sum(count for _, count in told)
    if not steps:
        return trial.plan.predicted.median_step_s
    if any(step_s is None for step_s, _ in told):
        return None
    return sum((step_s or 0.0) * count for step_s, count in told) / steps
