"""Figure of scaling efficiency within families of systems by number of accelerators."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import BASELINE_GREY, FOREGROUND, add_title_and_footer, create_figure
from analysis.mlperf.figures import frame
from analysis.mlperf.references import FamilyComparison
from analysis.mlperf.study import MlperfStudy, WorkloadComparison

PANEL_COLUMNS = 2
CAPTION = (
    "E' = (T(reference) / T) / (N / N of the reference); the reference is the slowest of the smallest systems of the "
    "same kind, submitter and software (ringed). Each mark is a system; the line joins the most efficient system of "
    "each size. Dotted lines: mixed submitters or software. Both axes are logarithmic. Dashed: E' of the reference, 1."
)

FamilyComparisons = Sequence[tuple[WorkloadComparison, FamilyComparison]]


def draw_family_efficiency(mlperf_study: MlperfStudy, comparisons: FamilyComparisons, title: str) -> CaptionedFigure:
    """Draw scaling efficiency by number of accelerators, one panel per workload and one curve per family."""
    workloads = list(dict.fromkeys(workload.name for workload, _ in comparisons))
    kinds = {family.reference.accelerator_kind for _, family in comparisons}
    key = {kind: tint for kind, tint in frame.colour_by_accelerator_kind(mlperf_study).items() if kind in kinds}
    rows = -(-len(workloads) // PANEL_COLUMNS)
    figure, panels = create_figure(rows, min(PANEL_COLUMNS, len(workloads)), 1.2 + 2.6 * rows, sharey=True)
    add_title_and_footer(figure, title, frame.NOT_OFFICIAL_NOTICE, key, frame.marker_by_accelerator_kind(mlperf_study))
    for axes, name in zip(panels, workloads, strict=False):
        _draw_family_panel(axes, mlperf_study, [family for workload, family in comparisons if workload.name == name])
        axes.set_title(name)
    for axes in panels[len(workloads) :]:
        axes.remove()
    return CaptionedFigure("families-efficiency", title, CAPTION, _figure_data(comparisons), figure)


def _draw_family_panel(axes: Axes, study: MlperfStudy, families: Sequence[FamilyComparison]) -> None:
    tints, shapes = frame.colour_by_accelerator_kind(study), frame.marker_by_accelerator_kind(study)
    axes.axhline(1, color=BASELINE_GREY, linestyle="--", linewidth=1)
    for family in families:
        reference, kind = family.reference, family.reference.accelerator_kind
        counts = [each.result.accelerator_count for each in family.systems]
        efficiencies = [each.efficiency for each in family.systems]
        best: dict[int, float] = {}
        for count, efficiency in zip(counts, efficiencies, strict=True):
            best[count] = max(efficiency, best.get(count, efficiency))
        line_style = ":" if family.is_mixed else "-"
        axes.plot(sorted(best), [best[count] for count in sorted(best)], line_style, color=tints[kind], linewidth=1)
        axes.plot(counts, efficiencies, color=tints[kind], marker=shapes[kind], markersize=5, **frame.MARK_STYLE)
        axes.plot(reference.accelerator_count, 1, "o", markersize=11, markerfacecolor="none", color=FOREGROUND)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("efficiency E'")
    counts = [each.result.accelerator_count for family in families for each in family.systems]
    frame.set_up_accelerator_count_axis(axes, counts)


def _figure_data(comparisons: FamilyComparisons) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "benchmark": workload.benchmark,
            "accelerator_kind": each.result.accelerator_kind,
            "submitter": each.result.submitter,
            "system": each.result.system,
            "accelerators": each.result.accelerator_count,
            "reference": each.reference.system,
            "submitter_and_software": family.submitter_and_software,
            "efficiency": each.efficiency,
        }
        for workload, family in comparisons
        for each in family.systems
    )
