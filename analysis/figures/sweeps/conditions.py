"""Figure `conditions`: training time per sample for each combination of swept scenario values.

The figure shows every strategy.
"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.report.wording import capitalise_first_letter
from analysis.results.swept_values import describe_sweep_slowdown, groups_by_swept_values, seconds_per_sample
from analysis.results.trial_group import TrialGroup


def draw_sample_time_by_sweep(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the training time per 1,000 samples for each combination of swept scenario values.

    Each strategy has one mark per combination: its trials on its largest number of workers.
    """
    groups_by_strategy = groups_by_swept_values(run.summary)
    if not groups_by_strategy:
        return None
    figure, (axes,) = style.create_figure(1, 1, 3.6)
    present = {group.condition for groups in groups_by_strategy for group in groups}
    condition_names = [name for name in run.summary.swept_values if name in present]
    curve_ends: dict[str, tuple[float, str]] = {}
    for groups in groups_by_strategy:
        strategy = groups[0].strategy
        colour = style.strategy_colour(run.summary, strategy)
        _draw_time_per_sample(axes, condition_names, groups, colour, style.strategy_marker(run.summary, strategy))
        curve_ends[strategy] = (1e3 * seconds_per_sample(groups[-1]), colour)
    axes.set_xticks(range(len(condition_names)), condition_names)
    axes.set_xlim(-0.2, len(condition_names) - 0.8)
    style.start_axes_at_zero([axes], y=True)
    axes.set_ylabel("virtual seconds per 1,000 samples")
    draw_right_edge_labels(axes, curve_ends)
    title = capitalise_first_letter(describe_sweep_slowdown(run.summary))
    style.add_run_title_and_footer(figure, run.summary, title)
    worker_counts = ", ".join(f"{groups[0].strategy} on {groups[0].workers}" for groups in groups_by_strategy)
    caption = f"Marks: olympic means over the repeats. Dots: single runs. Workers: {worker_counts}."
    return CaptionedFigure("conditions", title, caption, _time_per_sample_data(groups_by_strategy), figure)


def _draw_time_per_sample(
    axes: Axes, swept_values: Sequence[str], trial_groups: Sequence[TrialGroup], colour: str, marker: str
) -> None:
    ticks = [swept_values.index(group.condition) for group in trial_groups]
    means = [1e3 * seconds_per_sample(group) for group in trial_groups]
    axes.plot(ticks, means, marker, color=colour)  # no line: conditions are categories
    for tick, group in zip(ticks, trial_groups, strict=True):
        axes.plot(
            [tick] * len(group.trials), 1e3 * group.trial_times_s("time_to_samples"), "o", color=colour, markersize=2.5
        )


def _time_per_sample_data(trial_groups_by_strategy: Sequence[Sequence[TrialGroup]]) -> pd.DataFrame:
    rows = [
        (group.strategy, group.workers, group.condition, seconds_per_sample(group))
        for groups in trial_groups_by_strategy
        for group in groups
    ]
    return pd.DataFrame(rows, columns=["strategy", "workers", "condition", "seconds_per_sample"])
