"""E' against the number of accelerators, each system beside the reference of its own family."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import BASELINE_GREY, FOREGROUND, add_title_and_footer, create_figure
from analysis.mlperf.figures.frame import NOT_OFFICIAL, colours, counts_axis, markers
from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.references import Scaled
from analysis.mlperf.study import Study, Workload

COLUMNS = 2
CAPTION = (
    "E' = (T(reference) / T) / (N / N of the reference); the reference is the slowest of the smallest systems of the "
    "same family (ringed). A mark is a system, the line joins the most efficient of each size; both axes are "
    "logarithmic. Dashed: the reference's own."
)

Found = Sequence[tuple[Workload, tuple[Scaled, ...]]]


def families(study: Study, found: Found, title: str) -> Drawing:
    """One panel per workload."""
    workloads = list(dict.fromkeys(workload.name for workload, _ in found))
    kinds = {family(own[0].result.accelerator) for _, own in found}
    key = {kind: tint for kind, tint in colours(study).items() if kind in kinds}
    rows = -(-len(workloads) // COLUMNS)
    figure, panels = create_figure(rows, min(COLUMNS, len(workloads)), 1.2 + 2.6 * rows, sharey=True)
    add_title_and_footer(figure, title, NOT_OFFICIAL, key, markers(study))
    for axes, name in zip(panels, workloads, strict=False):
        _panel(axes, study, [own for workload, own in found if workload.name == name])
        axes.set_title(name)
    for axes in panels[len(workloads) :]:
        axes.remove()
    return Drawing("families-efficiency", title, CAPTION, _table(found), figure)


def _panel(axes: Axes, study: Study, members: Sequence[tuple[Scaled, ...]]) -> None:
    tints, shapes = colours(study), markers(study)
    axes.axhline(1, color=BASELINE_GREY, linestyle="--", linewidth=1)
    for own in members:
        kind = family(own[0].result.accelerator)
        counts = [each.result.accelerator_count for each in own]
        best = {
            count: max(each.efficiency for each in own if each.result.accelerator_count == count) for count in counts
        }
        axes.plot(list(best), list(best.values()), color=tints[kind], linewidth=1)
        axes.plot(
            counts, [each.efficiency for each in own], linestyle="none",
            marker=shapes[kind], color=tints[kind], markersize=5, alpha=0.75, markeredgewidth=0,
        )  # fmt: skip
        axes.plot(own[0].reference.accelerator_count, 1, "o", markersize=11, markerfacecolor="none", color=FOREGROUND)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("efficiency E'")
    counts_axis(axes, [each.result.accelerator_count for own in members for each in own])


def _table(found: Found) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "benchmark": workload.benchmark,
            "family": family(each.result.accelerator),
            "submitter": each.result.submitter,
            "system": each.result.system,
            "accelerators": each.result.accelerator_count,
            "reference": each.reference.system,
            "efficiency": each.efficiency,
        }
        for workload, own in found
        for each in own
    )
