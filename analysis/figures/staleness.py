"""Figure `staleness`: histogram of the staleness of gradients applied by parameter servers.

Staleness of a gradient is the number of updates between the worker's pull of the parameters and its push of the
gradient.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import FOREGROUND, add_run_title_and_footer, create_figure, strategy_colour
from analysis.results.trial_group import TrialGroup

MAX_PANEL_COLUMNS = 4


def draw_gradient_staleness(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw a histogram of gradient staleness for each strategy and number of workers.

    Staleness is counted in parameter updates.

    A vertical line marks n - 1 for n workers. Groups of trials without stale gradients are left out.
    """
    groups = [group for group in run.summary.trial_groups if group.workers > 1 and any(_updates_by_staleness(group))]
    if not groups:
        return None
    columns = min(MAX_PANEL_COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    figure, panels = create_figure(rows, columns, 1.1 + 2.3 * rows, sharey=True)
    title = _figure_title(groups)
    add_run_title_and_footer(figure, run.summary, title)
    for axes, group in zip(panels, groups, strict=False):
        _draw_staleness_histogram(axes, group, strategy_colour(run.summary, group.strategy))
    for axes in panels[len(groups) :]:
        axes.remove()
    caption = (
        "Share of the updates on the first shard by staleness: the number of updates that the shard applied between a "
        "worker's pull and its push. Dashed: n - 1, which n equal workers reach when they never wait."
    )
    return CaptionedFigure("staleness", title, caption, _make_staleness_table(groups), figure)


def _updates_by_staleness(trial_group: TrialGroup) -> dict[int, int]:
    """Return how many gradients were applied with each staleness.

    Gradients of all repeats are counted. The result contains only values of staleness that occurred.
    """
    total: dict[int, int] = {}
    for trial in trial_group.trials:
        for staleness, count in (trial.staleness or {"histogram": {}})["histogram"].items():
            total[int(staleness)] = total.get(int(staleness), 0) + count
    return total


def _mean_staleness(trial_group: TrialGroup) -> float:
    counts = _updates_by_staleness(trial_group)
    return float(np.average(list(counts), weights=list(counts.values())))


def _figure_title(trial_groups: Sequence[TrialGroup]) -> str:
    stalest = max(trial_groups, key=_mean_staleness)
    return (
        f"Gradients of {stalest.strategy} on {stalest.workers} workers have a mean staleness of "
        f"{_mean_staleness(stalest):.1f} updates (theory for equal workers: {stalest.workers - 1})"
    )


def _draw_staleness_histogram(axes: Axes, trial_group: TrialGroup, colour: str) -> None:
    counts = _updates_by_staleness(trial_group)
    total = sum(counts.values())
    axes.bar(list(counts), [count / total for count in counts.values()], width=0.85, color=colour)
    axes.axvline(trial_group.workers - 1, color=FOREGROUND, linestyle="--", linewidth=1)
    axes.set_title(f"{trial_group.name}\nmean {_mean_staleness(trial_group):.2f}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.7, max(*counts, trial_group.workers) + 0.7)
    axes.set_xlabel("staleness (updates)")


def _make_staleness_table(trial_groups: Sequence[TrialGroup]) -> pd.DataFrame:
    rows = [
        (group.strategy, group.condition, group.workers, staleness, count)
        for group in trial_groups
        for staleness, count in sorted(_updates_by_staleness(group).items())
    ]
    return pd.DataFrame(rows, columns=["strategy", "condition", "workers", "staleness_updates", "updates"])
