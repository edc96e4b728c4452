"""What is the time of a step spent on?"""

from analysis.metrics.step_seconds import whole_rounds
from analysis.reading.run_table import STEP_PHASES, TrialTable


def phase_seconds(trial: TrialTable) -> dict[str, float] | None:
    """Mean seconds per step of each phase, over all workers and whole rounds; `other` is what no phase accounts for.

    Rounds are whole as `whole_rounds` has it, so that `predicted_mean_step_s` is of the same; where none is, the mean
    is over all steps and nothing is predicted. `exchange` is exposed communication, `wait` the time blocked on peers
    that were not ready; they never overlap. other = mean(step) - sum of the phases, at least 0.
    """
    if trial.steps.empty:
        return None
    whole = whole_rounds(trial.steps, trial.plan.exchange_period)
    steps = trial.steps if whole.empty else whole
    means = {phase: float(steps[f"{phase}_s"].astype(float).mean()) for phase in STEP_PHASES}
    return means | {"other": max(0.0, float(steps["step_s"].mean()) - sum(means.values()))}
