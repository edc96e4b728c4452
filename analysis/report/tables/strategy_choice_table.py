"""Tables of a report on strategies that were chosen among candidates."""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.metrics.strategy_changes.strategy_choice import CandidateResult, StrategyChoiceResult
from analysis.report.wording import format_milliseconds
from analysis.results.trial_result import TrialResult

MAX_ROWS = 12


@dataclass(frozen=True)
class CandidateRow:
    """One candidate, as text."""

    name: str
    quality: str
    predicted: str  # milliseconds of a step
    probed: str  # milliseconds of a step
    decision: str


@dataclass(frozen=True)
class StrategyChoiceTable:
    """Choice of one trial: a sentence on its outcome, and its first candidates."""

    sentence: str
    rows: tuple[CandidateRow, ...]
    omitted_count: int  # candidates without a row


def make_strategy_choice_tables(trials: Iterable[TrialResult]) -> tuple[StrategyChoiceTable, ...]:
    """Return a table for each trial whose strategy was chosen among candidates.

    Repeats use the choice of the first repeat, so they have no table of their own.
    """
    return tuple(
        StrategyChoiceTable(
            sentence=_describe_outcome(trial.id, trial.strategy_choice),
            rows=tuple(map(_make_row, trial.strategy_choice.candidates[:MAX_ROWS])),
            omitted_count=max(0, len(trial.strategy_choice.candidates) - MAX_ROWS),
        )
        for trial in trials
        if trial.strategy_choice is not None and trial.repeat == 0
    )


def _describe_outcome(trial: str, choice: StrategyChoiceResult) -> str:
    """Return a sentence on the chosen candidate, and on its predicted and its measured step."""
    chosen = f"{trial}, quality {choice.guard}: {choice.chosen} was chosen among {len(choice.candidates)} candidates"
    ratio = choice.measured_over_predicted
    if ratio is None or choice.measured_step_seconds is None or choice.predicted_step_seconds is None:
        return f"{chosen}."
    measured, predicted = map(format_milliseconds, (choice.measured_step_seconds, choice.predicted_step_seconds))
    return f"{chosen}; its mean step took {measured} ms, {ratio:.2f} times the predicted {predicted} ms."


def _make_row(candidate: CandidateResult) -> CandidateRow:
    estimate = " (estimate)" if candidate.estimate_reason else ""
    return CandidateRow(
        candidate.name,
        candidate.quality,
        format_milliseconds(candidate.predicted_step_seconds) + estimate,
        format_milliseconds(candidate.probe_step_seconds),
        candidate.decision,
    )
