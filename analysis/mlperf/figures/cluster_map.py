"""Which systems of one workload fall together, and can that be believed?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.base import Drawing
from analysis.figures.drawing.labels import label_right_edge
from analysis.figures.drawing.style import BACKGROUND, BASELINE_GREY, FIGURE_WIDTH_IN, FOREGROUND, PALETTE, apply_layout
from analysis.mlperf.clusters import STABLE, Clustering
from analysis.mlperf.figures.frame import counts_axis, families, frame
from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_number

AREA = 90.0  # of a mark for one system, in square points
SHAPES = ("o", "s", "D", "h", "p", "8")  # with room for a number, one for each cluster that k-means may find
SHIFT = 0.3  # between marks at one place, in rows
ROW = 0.42  # inches for a kind of accelerator
CAPTION = (
    "Left: each mark holds the systems of one kind and size in one cluster; its area and the number in it say how "
    "many, its colour and shape which cluster. Clusters are numbered from small systems to large ones. "
    "Right: mean silhouette and stability of k-means by the number of clusters k; the ring is the k that is drawn, of "
    "the largest silhouette. Features: log2 N, log2 S and E', each standardised. Stability: mean adjusted Rand index "
    f"over all pairs of 20 seeds with one start each; from {STABLE:g} on (dotted) clusters are called stable."
)


@dataclass(frozen=True)
class Spot:
    """Systems of one kind and size in one cluster."""

    benchmark: str
    family: str
    accelerator_count: int
    cluster: int  # from 1
    systems: int


def cluster_map(study: Study, workload: Workload, found: Clustering) -> Drawing:
    """Kinds of accelerators by count, coloured by cluster; silhouette and stability beside."""
    present = {family(each.result.accelerator) for each in workload.systems}
    kinds = [kind for kind in families(study) if kind in present][::-1]
    figure = Figure(figsize=(FIGURE_WIDTH_IN, 2.6 + ROW * len(kinds)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2.3, 1))
    title = _title(workload, found)
    names = [_called(workload, found, label) for label in range(found.best.k)]
    key, shapes = dict(zip(names, PALETTE, strict=False)), dict(zip(names, SHAPES, strict=False))
    frame(figure, study, workload, title, key, shapes)
    spots = _spots(workload, found)
    _map(left, spots, kinds)
    counts_axis(left, [each.result.accelerator_count for each in workload.systems])
    _doubts(right, found)
    apply_layout(figure)  # settles the limits that names are placed by
    last = found.partitions[-1]
    label_right_edge(
        right,
        {"stability": (last.stability, BASELINE_GREY), "silhouette": (last.silhouette, FOREGROUND)},
        font_points=8,
    )
    return Drawing(f"clusters-{workload.benchmark}", title, CAPTION, pd.DataFrame(map(vars, spots)), figure)


def _spots(workload: Workload, found: Clustering) -> list[Spot]:
    counts = Counter(
        (workload.benchmark, family(each.result.accelerator), each.result.accelerator_count, label + 1)
        for each, label in zip(workload.systems, found.best.labels, strict=True)
    )
    return [Spot(*where, systems) for where, systems in sorted(counts.items())]


def _title(workload: Workload, found: Clustering) -> str:
    best = found.best
    doubt = "" if best.stable else "; other seeds find others, so don't build on them"
    return (
        f"{workload.name}: {best.k} clusters, silhouette {best.silhouette:.2f}, stability {best.stability:.2f}{doubt}"
    )


def _called(workload: Workload, found: Clustering, label: int) -> str:
    members = [each for each, own in zip(workload.systems, found.best.labels, strict=True) if own == label]
    counts = sorted(each.result.accelerator_count for each in members)
    efficiencies = sorted(each.efficiency for each in members)
    sizes = span(f"{counts[0]:,}", f"{counts[-1]:,}")
    return f"{label + 1}: N {sizes}, E' {span(format_number(efficiencies[0]), format_number(efficiencies[-1]))}"


def span(low: str, high: str) -> str:
    """A range, or the one value it holds."""
    return low if low == high else f"{low} to {high}"


def _map(axes: Axes, spots: Sequence[Spot], kinds: Sequence[str]) -> None:
    for spot in spots:
        count, height = spot.accelerator_count, kinds.index(spot.family) + _aside(spot, spots)
        tint, shape = PALETTE[spot.cluster - 1], SHAPES[spot.cluster - 1]
        axes.scatter(count, height, s=AREA * spot.systems, color=tint, marker=shape, alpha=0.85, linewidth=0)
        axes.annotate(
            str(spot.systems), (count, height), ha="center", va="center", size=8, color=BACKGROUND, fontweight="bold"
        )
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_ylim(-0.6, len(kinds) - 0.4)
    axes.set_title("systems by kind, size and cluster")


def _aside(spot: Spot, spots: Sequence[Spot]) -> float:
    """By how much a mark moves up or down for others of the same kind and size that are in other clusters."""
    place = (spot.family, spot.accelerator_count)
    here = [each for each in spots if (each.family, each.accelerator_count) == place]
    return SHIFT * (here.index(spot) - (len(here) - 1) / 2)


def _doubts(axes: Axes, found: Clustering) -> None:
    tried = [each.k for each in found.partitions]
    axes.axhline(STABLE, color=BASELINE_GREY, linestyle=":", linewidth=1)
    axes.plot(tried, [each.stability for each in found.partitions], color=BASELINE_GREY, marker="s", markersize=4)
    axes.plot(tried, [each.silhouette for each in found.partitions], color=FOREGROUND, marker="o", markersize=5)
    axes.plot(found.best.k, found.best.silhouette, "o", markersize=12, markerfacecolor="none", color=FOREGROUND)
    axes.set_xticks(tried)
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("clusters k")
    axes.set_title("silhouette and stability by k")
