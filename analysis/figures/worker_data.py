"""Figure `worker_data`: the training samples that each worker owns, by class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import BACKGROUND, PALETTE, add_run_title_and_footer, create_figure
from analysis.reading.plan_view import TrialPlan
from analysis.report.wording import format_number
from analysis.statistics.centre import Floats

MAX_PANELS = 6
MAX_LABELLED_CLASSES, MAX_LABELLED_WORKERS = 20, 32
LIGHT_TEXT, DARK_TEXT = "#fefefe", "#010101"  # on cells, whose colours are the same on a dark page
CLASS_COLOURS = LinearSegmentedColormap.from_list("samples", [BACKGROUND, PALETTE[0]])


@dataclass(frozen=True)
class WorkerData:
    """Samples that the workers own in one or more trials."""

    name: str  # of the partition, with its settings
    counts: Floats  # shape (workers, classes); one column for a regression
    has_classes: bool

    @property
    def mean_largest_share(self) -> float:
        """Mean over workers of the share of a worker's most frequent class."""
        return float((self.counts.max(axis=1) / self.counts.sum(axis=1)).mean())

    @property
    def largest_share_in_all_samples(self) -> float:
        """Share of the most frequent class in the samples of all workers."""
        return float(self.counts.sum(axis=0).max() / self.counts.sum())

    @property
    def size_ratio(self) -> float:
        """Samples of the largest part, relative to those of the smallest part."""
        sizes = self.counts.sum(axis=1)
        return float(sizes.max() / sizes.min())


def draw_worker_data(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw how many samples of each class every worker owns, with one panel per partition and number of workers."""
    found = _list_worker_data([trial.plan for trial in run.table.trials])
    if not found:
        return None
    shown = found[:MAX_PANELS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure, panels = create_figure(rows, columns, 1.3 + 2.6 * rows)
    title = _figure_title(shown)
    add_run_title_and_footer(figure, run.summary, title)
    for axes, data in zip(panels, shown, strict=False):
        _draw_panel(axes, data)
    for axes in panels[len(shown) :]:
        axes.remove()
    caption = (
        "Training samples that each worker owns. A worker draws its share of every batch from its own samples only. "
        "Numbers and colours: samples of a class."
    )
    if len(found) > len(shown):
        caption += f" {len(found) - len(shown)} more partitions are in the data of the figure."
    return CaptionedFigure("worker_data", title, caption, _make_table(found), figure)


def _list_worker_data(plans: Sequence[TrialPlan]) -> list[WorkerData]:
    """Return the different partitions of a run, in the order of its trials."""
    found: dict[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], WorkerData] = {}
    for plan in plans:
        if plan.part_sizes:
            counts = plan.class_counts or tuple((size,) for size in plan.part_sizes)
            data = WorkerData(_partition_name(plan), np.array(counts, float), has_classes=bool(plan.class_counts))
            found.setdefault((plan.part_sizes, plan.class_counts), data)
    return [*found.values()]


def _partition_name(plan: TrialPlan) -> str:
    """Return the name of a plan's partition, such as `dirichlet, alpha 0.5, 4 workers`."""
    settings = [
        f"{key.replace('_', ' ')} {value:g}"
        for key, value in plan.partition.items()
        if isinstance(value, int | float) and (key != "seed" or value)
    ]
    return ", ".join([str(plan.partition.get("kind", "")), *settings, f"{plan.workers} workers"])


def _figure_title(shown: Sequence[WorkerData]) -> str:
    """Return the finding: the most uneven mix of classes, or else the most uneven sizes."""
    by_class = [data for data in shown if data.has_classes]
    if by_class and max(each.mean_largest_share / each.largest_share_in_all_samples for each in by_class) > 1.5:  # noqa: PLR2004 - clearly uneven
        data = max(by_class, key=lambda each: each.mean_largest_share)
        return (
            f"With {data.name}, {data.mean_largest_share:.0%} of a worker's samples belong to its most frequent class "
            f"({data.largest_share_in_all_samples:.0%} in all samples)"
        )
    data = max(shown, key=lambda each: each.size_ratio)
    ratio = format_number(data.size_ratio)
    return f"With {data.name}, the largest part has {ratio} times as many samples as the smallest"


def _draw_panel(axes: Axes, data: WorkerData) -> None:
    workers, classes = data.counts.shape
    axes.imshow(data.counts, aspect="auto", cmap=CLASS_COLOURS, vmin=0)
    axes.grid(visible=False)
    axes.set_title(data.name)
    axes.set_ylabel("worker")
    axes.set_yticks(range(workers) if workers <= MAX_LABELLED_WORKERS else [0, workers - 1])
    axes.set_xlabel("class" if data.has_classes else "all samples")
    axes.set_xticks(range(classes) if 1 < classes <= MAX_LABELLED_CLASSES else [])
    if classes <= MAX_LABELLED_CLASSES and workers <= MAX_LABELLED_WORKERS:
        for (worker, number), count in np.ndenumerate(data.counts):
            if count:
                colour = LIGHT_TEXT if count > data.counts.max() / 2 else DARK_TEXT
                axes.text(number, worker, f"{count:,.0f}", ha="center", va="center", fontsize="xx-small", color=colour)


def _make_table(found: Sequence[WorkerData]) -> pd.DataFrame:
    rows = [
        (data.name, f"worker-{worker}", number if data.has_classes else None, int(count))
        for data in found
        for (worker, number), count in np.ndenumerate(data.counts)
    ]
    return pd.DataFrame(rows, columns=["partition", "worker", "class", "samples"])
