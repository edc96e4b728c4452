"""Choice of a trial's strategy among candidates: predictions, probes, the choice, and its outcome."""

from dataclasses import dataclass

from analysis.metrics.step_times.step_seconds import step_time_statistics
from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class CandidateResult:
    """One candidate of a choice. Times are virtual seconds of a step."""

    name: str  # kind, and keys that differ from the defaults
    quality: str  # how close its training is to synchronous training without compression
    predicted_step_seconds: float | None  # mean over the budget of the trial; None for an impossible candidate
    estimate_reason: str  # why the prediction is only an estimate; empty: a closed form describes the training time
    probe_step_seconds: float | None  # measured on whole batches before the trial; None: not probed, or it failed
    decision: str  # chosen, or why not


@dataclass(frozen=True)
class StrategyChoiceResult:
    """Choice among candidates, and the step time of the trial under the chosen one."""

    guard: str  # value of the key `quality`
    chosen: str  # name of the chosen candidate
    candidates: list[CandidateResult]  # those with the least probed or predicted steps first
    predicted_step_seconds: float | None  # of the chosen candidate
    probe_step_seconds: float | None  # of the chosen candidate
    measured_step_seconds: float | None  # mean over all steps of the trial

    @property
    def measured_over_predicted(self) -> float | None:
        """Measured step of the trial, divided by the predicted step; None if one of them is not known."""
        if not self.measured_step_seconds or not self.predicted_step_seconds:
            return None
        return self.measured_step_seconds / self.predicted_step_seconds


def describe_strategy_choice(trial: TrialLogTables) -> StrategyChoiceResult | None:
    """Return how the strategy of a trial was chosen; None if the scenario declares the strategy itself."""
    choice = trial.plan.strategy_choice
    if choice is None:
        return None
    results = [
        CandidateResult(
            name=candidate.name,
            quality=candidate.quality,
            predicted_step_seconds=candidate.predicted_step_s,
            estimate_reason=candidate.estimate_reason,
            probe_step_seconds=candidate.probe_step_s,
            decision=choice.explain(number),
        )
        for number, candidate in enumerate(choice.candidates)
    ]
    chosen, statistics = results[choice.chosen], step_time_statistics(trial)
    return StrategyChoiceResult(
        guard=choice.guard,
        chosen=chosen.name,
        candidates=sorted(results, key=lambda result: _sort_key(result, is_chosen=result is chosen)),
        predicted_step_seconds=chosen.predicted_step_seconds,
        probe_step_seconds=chosen.probe_step_seconds,
        measured_step_seconds=statistics["mean"] if statistics else None,
    )


def _sort_key(result: CandidateResult, *, is_chosen: bool) -> tuple[bool, bool, float]:
    """Return the position of a candidate: the chosen one, those that were probed, and the others by prediction."""
    step_s = result.probe_step_seconds or result.predicted_step_seconds
    return not is_chosen, result.probe_step_seconds is None, float("inf") if step_s is None else step_s
