"""Figure of the clusters of systems for one workload.

Silhouette and stability are shown for each number of clusters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.figures.drawing.style import BACKGROUND, BASELINE_GREY, FIGURE_WIDTH_IN, FOREGROUND, PALETTE, apply_layout
from analysis.mlperf.clusters import MIN_STABLE_RAND_INDEX, SystemClusterings
from analysis.mlperf.figures import frame
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_number

MARK_AREA_PT2 = 90.0  # area of the mark of one system, in square points
CLUSTER_MARKERS = ("o", "s", "D", "h", "p", "8")  # one per cluster; each has room for a number
MARK_SHIFT_ROWS = 0.3  # between marks of equal kind and size, in rows
ROW_HEIGHT_IN = 0.42  # height of one kind of accelerator
CAPTION = (
    "Left: each mark stands for the systems of one kind and size in one cluster; its area and the number in it show "
    "how many systems, its colour and shape which cluster. Clusters are numbered from small systems to large ones. "
    "Right: mean silhouette and stability of k-means by the number of clusters k; the ring marks the k of the left "
    "panel, which has the largest silhouette. Features: log2 N, log2 S and E', each standardised. Stability: mean "
    f"adjusted Rand index over all pairs of 20 seeds with one start each; from {MIN_STABLE_RAND_INDEX:g} on (dotted) "
    "clusters are called stable."
)


@dataclass(frozen=True)
class SystemGroupMark:
    """Mark in the cluster figure: all systems with the same kind of accelerator, accelerator count and cluster."""

    benchmark: str
    accelerator_kind: str
    accelerator_count: int
    cluster: int  # number of the cluster, from 1
    systems: int


def draw_system_cluster_map(
    mlperf_study: MlperfStudy, workload: WorkloadComparison, clusterings: SystemClusterings
) -> CaptionedFigure:
    """Draw two panels: systems coloured by cluster, and silhouette and stability by number of clusters."""
    present = {each.result.accelerator_kind for each in workload.systems}
    kinds = [kind for kind in frame.sort_accelerator_kinds(mlperf_study) if kind in present][::-1]
    figure = Figure(figsize=(FIGURE_WIDTH_IN, 2.6 + ROW_HEIGHT_IN * len(kinds)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2.3, 1))
    title = _format_cluster_map_title(workload, clusterings)
    names = [_format_legend_text(workload, clusterings, label) for label in range(clusterings.best_by_silhouette.k)]
    key, shapes = dict(zip(names, PALETTE, strict=False)), dict(zip(names, CLUSTER_MARKERS, strict=False))
    frame.add_study_title_and_footer(figure, mlperf_study, workload, title, key, shapes)
    spots = _make_cluster_marks(workload, clusterings)
    _draw_system_cluster_marks(left, spots, kinds)
    frame.set_up_accelerator_count_axis(left, [each.result.accelerator_count for each in workload.systems])
    _draw_silhouette_and_stability(right, clusterings)
    apply_layout(figure)  # fixes the axis limits that the curve names are placed by
    last = clusterings.assignments[-1]
    labels = {"stability": (last.stability, BASELINE_GREY), "silhouette": (last.silhouette, FOREGROUND)}
    draw_right_edge_labels(right, labels, font_points=8)
    return CaptionedFigure(f"clusters-{workload.benchmark}", title, CAPTION, pd.DataFrame(map(vars, spots)), figure)


def _make_cluster_marks(workload: WorkloadComparison, clusterings: SystemClusterings) -> list[SystemGroupMark]:
    counts = Counter(
        (workload.benchmark, each.result.accelerator_kind, each.result.accelerator_count, label + 1)
        for each, label in zip(workload.systems, clusterings.best_by_silhouette.labels, strict=True)
    )
    return [SystemGroupMark(*where, systems) for where, systems in sorted(counts.items())]


def _format_cluster_map_title(workload: WorkloadComparison, clusterings: SystemClusterings) -> str:
    best = clusterings.best_by_silhouette
    note = "" if best.is_stable else "; not stable: other seeds find different clusters"
    return f"{workload.name}: {best.k} clusters, silhouette {best.silhouette:.2f}, stability {best.stability:.2f}{note}"


def _format_legend_text(workload: WorkloadComparison, clusterings: SystemClusterings, cluster_index: int) -> str:
    members = clusterings.best_by_silhouette.members(workload.systems, cluster_index)
    counts = sorted(each.result.accelerator_count for each in members)
    efficiencies = sorted(each.efficiency for each in members)
    sizes = format_text_range(f"{counts[0]:,}", f"{counts[-1]:,}")
    efficiency_range = format_text_range(format_number(efficiencies[0]), format_number(efficiencies[-1]))
    return f"{cluster_index + 1}: N {sizes}, E' {efficiency_range}"


def format_text_range(low_text: str, high_text: str) -> str:
    """Format a range as `low to high`, or as a single value if both ends are equal."""
    return low_text if low_text == high_text else f"{low_text} to {high_text}"


def _draw_system_cluster_marks(
    axes: Axes, cluster_map_marks: Sequence[SystemGroupMark], accelerator_kinds: Sequence[str]
) -> None:
    for spot in cluster_map_marks:
        row = accelerator_kinds.index(spot.accelerator_kind) + _vertical_mark_shift(spot, cluster_map_marks)
        place = (spot.accelerator_count, row)
        tint, shape = PALETTE[spot.cluster - 1], CLUSTER_MARKERS[spot.cluster - 1]
        axes.scatter(*place, s=MARK_AREA_PT2 * spot.systems, color=tint, marker=shape, alpha=0.85, linewidth=0)
        axes.annotate(str(spot.systems), place, ha="center", va="center", size=8, color=BACKGROUND, fontweight="bold")
    axes.set_yticks(range(len(accelerator_kinds)), accelerator_kinds)
    axes.set_ylim(-0.6, len(accelerator_kinds) - 0.4)
    axes.set_title("systems by kind, size and cluster")


def _vertical_mark_shift(cluster_mark: SystemGroupMark, all_marks: Sequence[SystemGroupMark]) -> float:
    """Return the vertical shift of a mark in the cluster figure, in rows.

    The shift separates marks with equal kind of accelerator and equal number of accelerators.
    """
    kind_and_size = (cluster_mark.accelerator_kind, cluster_mark.accelerator_count)
    overlapping = [each for each in all_marks if (each.accelerator_kind, each.accelerator_count) == kind_and_size]
    return MARK_SHIFT_ROWS * (overlapping.index(cluster_mark) - (len(overlapping) - 1) / 2)


def _draw_silhouette_and_stability(axes: Axes, clusterings: SystemClusterings) -> None:
    counts = [each.k for each in clusterings.assignments]
    axes.axhline(MIN_STABLE_RAND_INDEX, color=BASELINE_GREY, linestyle=":", linewidth=1)
    axes.plot(
        counts, [each.stability for each in clusterings.assignments], color=BASELINE_GREY, marker="s", markersize=4
    )
    axes.plot(counts, [each.silhouette for each in clusterings.assignments], color=FOREGROUND, marker="o", markersize=5)
    best = clusterings.best_by_silhouette
    axes.plot(best.k, best.silhouette, "o", markersize=12, markerfacecolor="none", color=FOREGROUND)
    axes.set_xticks(counts)
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("clusters k")
    axes.set_title("silhouette and stability by k")
