"""What is the time of a step spent on?"""

from analysis.table import PHASES, TrialTable


def phase_seconds(trial: TrialTable) -> dict[str, float] | None:
    """Mean seconds per step of each phase, over all workers and steps; `other` is what no phase accounts for.

    `exchange` is exposed communication, `wait` the time blocked on peers that were not ready; they never overlap.
    other = mean(step) - sum of the phases, at least 0.
    """
    if trial.steps.empty:
        return None
    means = {phase: float(trial.steps[f"{phase}_s"].astype(float).mean()) for phase in PHASES}
    return means | {"other": max(0.0, float(trial.steps["step_s"].mean()) - sum(means.values()))}
