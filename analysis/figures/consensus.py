"""Figure `consensus`: distance of the workers' parameters from their mean, under gossip strategies."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import pandas as pd

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.metrics.learning.consensus import ConsensusResult
from analysis.report.wording import TIMES_SIGN, format_percentage
from analysis.results.trial_result import TrialResult


@dataclass(frozen=True)
class TrialConsensus:
    """Consensus distances of one trial."""

    result: TrialResult
    consensus: ConsensusResult

    @property
    def name(self) -> str:
        """Strategy, number of workers and swept values of the trial."""
        trial = self.result
        return f"{trial.strategy} {TIMES_SIGN}{trial.workers}" + (f" · {trial.condition}" if trial.condition else "")

    @property
    def points(self) -> list[tuple[int, float]]:
        """Step and relative distance of each evaluation at which the distance is a finite number."""
        distances = ((each.step, each.relative_distance) for each in self.consensus.evaluations)
        return [(step, distance) for step, distance in distances if distance is not None and isfinite(distance)]


def draw_consensus(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the relative consensus distance at each evaluation, one curve per gossip strategy.

    The first repeat on each number of workers is drawn.
    """
    trials = _find_first_repeats(run)
    if not trials:
        return None
    names = {trial.result.strategy: style.strategy_colour(run.summary, trial.result.strategy) for trial in trials}
    figure, (axes,) = style.create_figure(1, 1, 3.4 + 0.2 * style.count_legend_rows(names))
    title = _figure_title(trials)
    style.add_run_title_and_footer(figure, run.summary, title, names)
    for trial in trials:
        steps, distances = zip(*trial.points, strict=True)
        line_style = style.swept_values_line_style(run.summary, trial.result.condition)
        axes.plot(
            steps,
            distances,
            color=names[trial.result.strategy],
            marker=style.strategy_marker(run.summary, trial.result.strategy),
            markersize=4,
            linestyle=line_style,
        )
    if all(distance > 0 for trial in trials for _, distance in trial.points):
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("relative consensus distance")
    caption = (
        "Root mean square over the workers of the distance between a worker's parameters and their mean, relative to "
        "the norm of the mean, at each evaluation of the first repeat. Evaluations use the mean."
    )
    return CaptionedFigure("consensus", title, caption, _make_table(trials), figure)


def _find_first_repeats(run: AnalysedRun) -> list[TrialConsensus]:
    """Return the first repeat of each gossip strategy, for each number of workers and swept values."""
    found: dict[tuple[str, int, str], TrialConsensus] = {}
    for result in run.summary.trials:
        if result.consensus is not None and result.is_finished:
            trial = TrialConsensus(result, result.consensus)
            if trial.points:
                found.setdefault((result.strategy, result.workers, result.condition), trial)
    return [*found.values()]


def _figure_title(trials: Sequence[TrialConsensus]) -> str:
    """Return the finding on the largest and the smallest distance at the last evaluation."""
    ranked = sorted(trials, key=lambda trial: trial.points[-1][1])
    nearest, farthest = ranked[0], ranked[-1]
    if len(ranked) == 1:
        return (
            f"At the last evaluation, the relative consensus distance is {_format_distance(nearest)} ({nearest.name})"
        )
    return (
        f"At the last evaluation, relative consensus distances are {_format_distance(nearest)} ({nearest.name}) to "
        f"{_format_distance(farthest)} ({farthest.name})"
    )


def _format_distance(trial: TrialConsensus) -> str:
    return format_percentage(trial.points[-1][1], 2)


def _make_table(trials: Sequence[TrialConsensus]) -> pd.DataFrame:
    rows = [
        (
            *(trial.result.id, trial.result.strategy, trial.result.workers, trial.result.condition),
            *(each.step, each.distance, each.relative_distance),
        )
        for trial in trials
        for each in trial.consensus.evaluations
    ]
    columns = ["trial", "strategy", "workers", "condition", "step", "distance", "relative_distance"]
    return pd.DataFrame(rows, columns=columns)
