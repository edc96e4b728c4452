"""Figure `quality`: quality of the trained model for each combination of swept scenario values."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.figures.drawing.style import add_run_title_and_footer, create_figure, strategy_colour, strategy_marker
from analysis.report.wording import capitalise_first_letter, format_number
from analysis.results.swept_values import groups_by_swept_values
from analysis.results.trial_group import TrialGroup
from analysis.statistics.centre import Floats

LOSS_METRIC = "loss"  # measured in every run; shown only where a run measures nothing else


def draw_final_model_quality(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the final quality of the trained model for each combination of swept values.

    Each strategy has one mark per combination: the mean of its trials on its largest number of workers.
    """
    metric = _choose_quality_metric(run)
    strategy_groups = [
        groups
        for groups in groups_by_swept_values(run.summary)
        if all(final_metric_values(group, metric).size for group in groups)
    ]
    if not any(_do_groups_differ_in_metric(groups, metric) for groups in strategy_groups):
        return None
    figure, (axes,) = create_figure(1, 1, 3.6)
    present = {group.condition for groups in strategy_groups for group in groups}
    condition_names = [name for name in run.summary.swept_values if name in present]
    curve_ends: dict[str, tuple[float, str]] = {}
    for groups in strategy_groups:
        strategy = groups[0].strategy
        colour, marker = strategy_colour(run.summary, strategy), strategy_marker(run.summary, strategy)
        _draw_strategy_marks(axes, condition_names, groups, metric, colour, marker)
        curve_ends[strategy] = (_mean_final_metric(groups[-1], metric), colour)
    axes.set_xticks(range(len(condition_names)), condition_names)
    axes.set_xlim(-0.2, len(condition_names) - 0.8)
    axes.set_ylabel(f"{metric} at the end")
    draw_right_edge_labels(axes, curve_ends)
    title = capitalise_first_letter("; ".join(_describe_metric_range(groups, metric) for groups in strategy_groups[:3]))
    add_run_title_and_footer(figure, run.summary, title)
    caption = f"The {metric} of the last evaluation. Marks: means over the repeats. Dots: single runs."
    return CaptionedFigure("quality", title, caption, _figure_data(strategy_groups, metric), figure)


def final_metric_values(trial_group: TrialGroup, metric_name: str) -> Floats:
    """Return the value of a quality metric at the last evaluation of each repeated trial.

    Trials without an evaluation are left out.
    """
    return np.array([trial.final[metric_name] for trial in trial_group.trials if metric_name in trial.final])


def _mean_final_metric(trial_group: TrialGroup, metric_name: str) -> float:
    return float(final_metric_values(trial_group, metric_name).mean())


def _choose_quality_metric(run: AnalysedRun) -> str:
    """Return the name of the metric that measures the quality of the model in a run.

    This is the first metric that is not the loss, or the loss if the run has no other metric.
    """
    metrics = dict.fromkeys(name for trial in run.summary.trials for name in trial.final)
    return next((name for name in metrics if name != LOSS_METRIC), LOSS_METRIC)


def _do_groups_differ_in_metric(trial_groups: Sequence[TrialGroup], metric_name: str) -> bool:
    """Return whether a strategy's mean final metric differs between swept values.

    The means are compared after rounding as in the report.
    """
    return len({format_number(_mean_final_metric(group, metric_name)) for group in trial_groups}) > 1


def _describe_metric_range(groups: Sequence[TrialGroup], metric: str) -> str:
    """Return a clause with the lowest and the highest mean final metric of a strategy.

    The clause states the swept values of both.
    """
    ranked = sorted(groups, key=lambda group: _mean_final_metric(group, metric))
    extremes = (ranked[0], ranked[-1])
    low, high = (f"{format_number(_mean_final_metric(group, metric))} with {group.condition}" for group in extremes)
    return f"{groups[0].strategy} ends at {metric} {low}, {high}"


def _draw_strategy_marks(
    axes: Axes, swept_values: Sequence[str], trial_groups: Sequence[TrialGroup], metric: str, colour: str, marker: str
) -> None:
    places = [swept_values.index(group.condition) for group in trial_groups]
    means = [_mean_final_metric(group, metric) for group in trial_groups]
    axes.plot(places, means, marker, color=colour)  # no line: conditions are categories
    for place, group in zip(places, trial_groups, strict=True):
        values = final_metric_values(group, metric)
        axes.plot([place] * values.size, values, "o", color=colour, markersize=2.5)


def _figure_data(strategy_groups: Sequence[Sequence[TrialGroup]], quality_metric_name: str) -> pd.DataFrame:
    rows = [
        (group.strategy, group.workers, group.condition, trial.seed, trial.final[quality_metric_name])
        for groups in strategy_groups
        for group in groups
        for trial in group.trials
        if quality_metric_name in trial.final
    ]
    return pd.DataFrame(rows, columns=["strategy", "workers", "condition", "seed", quality_metric_name])
