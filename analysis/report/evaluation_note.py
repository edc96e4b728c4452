"""Note of a report on evaluations: how exact times to the target are, and how long evaluations took."""

from collections.abc import Iterator

from analysis.report.wording import format_number, format_percentage, join_names
from analysis.results.summary import RunSummary
from analysis.results.trial_result import TrialResult


def evaluation_note(summary: RunSummary) -> str:
    """Return sentences on the evaluations before the target, with the resolution of times to the target.

    Empty if no trial reached the target.
    """
    trials = [trial for trial in summary.trials if trial.is_finished and trial.time_to_target_s]
    if not trials:
        return ""
    counts = [trial.evaluations for trial in trials]
    count = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    coarsest = max(trials, key=_resolution_share)
    resolution = (
        f"Trials reached the target at evaluation {count}. A time to the target is that of the evaluation that reached "
        f"the target, so it is too long by at most the time since the previous evaluation: "
        f"{format_percentage(_resolution_share(coarsest))} or less ({coarsest.id}: about "
        f"{format_number(coarsest.evaluation_interval_s)} s)."
    )
    return " ".join(filter(None, (resolution, _describe_evaluation_time(trials), *_describe_evaluated_models(trials))))


def _describe_evaluated_models(trials: list[TrialResult]) -> Iterator[str]:
    """Yield sentences on the strategies whose evaluations do not measure parameters that all workers share."""
    names: dict[str | None, dict[str, None]] = {}
    for trial in trials:
        names.setdefault(trial.evaluated_model, {})[trial.strategy] = None
    if averaged := names.get("mean"):
        yield f"For {join_names(averaged)}, the target is checked with the mean of all workers' parameters."
    if of_worker_0 := names.get("worker_0_then_mean"):
        yield (
            f"For {join_names(of_worker_0)}, the target is checked with the parameters of worker-0; the result of the "
            "training is the mean over all workers, which is evaluated afterwards and may be better or worse."
        )


def _describe_evaluation_time(trials: list[TrialResult]) -> str:
    timed = [trial for trial in trials if trial.evaluation_seconds is not None]
    if not timed:
        return ""
    slowest = max(timed, key=_evaluation_share)
    if not slowest.evaluation_seconds:
        return "Evaluations took no virtual time."
    return (
        f"Evaluations took {format_percentage(_evaluation_share(slowest), 1)} of the time to the target or less "
        f"({slowest.id}: {format_number(slowest.evaluation_seconds)} s)."
    )


def _resolution_share(trial: TrialResult) -> float:
    """Return the time since the previous evaluation as a share of the time to the target."""
    return trial.evaluation_interval_s / (trial.time_to_target_s or 1.0)


def _evaluation_share(trial: TrialResult) -> float:
    """Return the seconds of evaluations as a share of the time to the target."""
    return (trial.evaluation_seconds or 0.0) / (trial.time_to_target_s or 1.0)
