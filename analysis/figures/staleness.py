"""How old are the gradients that the servers apply?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import INK, canvas, colour, frame
from analysis.results.result import TrialGroup

COLUMNS = 4


def staleness(run: Run) -> Drawing | None:
    """One histogram per strategy and N that had stale gradients, with n - 1 marked."""
    found = [group for group in run.summary.groups if group.workers > 1 and any(_counts(group))]
    if not found:
        return None
    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure, panels = canvas(rows, columns, 1.1 + 2.3 * rows, sharey=True)
    title = _title(found)
    frame(figure, run.summary, title)
    for axes, group in zip(panels, found, strict=False):
        _histogram(axes, group, colour(run.summary, group.strategy))
    for axes in panels[len(found) :]:
        axes.remove()
    caption = (
        "Share of updates on the first shard by the number of updates applied between a worker's pull and its push. "
        "Dashed: n - 1, where n equal workers that never wait end up."
    )
    return Drawing("staleness", title, caption, _table(found), figure)


def _counts(group: TrialGroup) -> dict[int, int]:
    """Updates by age over all repeats; ages that never occurred in between count zero."""
    total: dict[int, int] = {}
    for trial in group.trials:
        for age, count in (trial.staleness or {"histogram": {}})["histogram"].items():
            total[int(age)] = total.get(int(age), 0) + count
    return total


def _mean(group: TrialGroup) -> float:
    counts = _counts(group)
    return float(np.average(list(counts), weights=list(counts.values())))


def _title(found: Sequence[TrialGroup]) -> str:
    top = max(found, key=_mean)
    return (
        f"Gradients of {top.strategy} on {top.workers} workers are {_mean(top):.1f} updates old on average "
        f"(theory for equal workers: {top.workers - 1})"
    )


def _histogram(axes: Axes, group: TrialGroup, tint: str) -> None:
    counts = _counts(group)
    total = sum(counts.values())
    axes.bar(list(counts), [count / total for count in counts.values()], width=0.85, color=tint)
    axes.axvline(group.workers - 1, color=INK, linestyle="--", linewidth=1)
    axes.set_title(f"{group.name}\nmean {_mean(group):.2f}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.7, max(*counts, group.workers) + 0.7)
    axes.set_xlabel("staleness (updates)")


def _table(found: Sequence[TrialGroup]) -> pd.DataFrame:
    rows = [
        (group.strategy, group.condition, group.workers, age, count)
        for group in found
        for age, count in sorted(_counts(group).items())
    ]
    return pd.DataFrame(rows, columns=["strategy", "condition", "workers", "staleness_updates", "updates"])
