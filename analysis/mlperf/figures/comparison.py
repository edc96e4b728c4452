"""Figure of speedup and efficiency of all systems of a workload against the number of accelerators."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import BASELINE_GREY, FOREGROUND, create_figure
from analysis.mlperf.figures import frame
from analysis.mlperf.references import ComparedResult
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import TIMES_SIGN, format_number

HEIGHT_IN = 4.4
FAMILY_COLUMNS = ("family_efficiency", "family_submitter_and_software")
CAPTION = (
    "Left: speedup S = T(reference) / T; dashed: S = N / N of the reference. Right: efficiency E' = S / (N / N of the "
    "reference); dashed: E' of the reference, 1. Systems above the line have faster accelerators than the reference; "
    "they do not scale better than perfectly. All axes are logarithmic. Each mark is a system; colour and shape show "
    "the kind of accelerator. Ringed: the reference."
)


def draw_speedup_and_efficiency(mlperf_study: MlperfStudy, workload: WorkloadComparison) -> CaptionedFigure:
    """Draw speedup and scaling efficiency by number of accelerators, one panel each and one mark per system."""
    present = {each.result.accelerator_kind for each in workload.systems}
    key = {kind: tint for kind, tint in frame.colour_by_accelerator_kind(mlperf_study).items() if kind in present}
    figure, (left, right) = create_figure(1, 2, HEIGHT_IN)
    title = _format_speedup_title(workload)
    frame.add_study_title_and_footer(
        figure, mlperf_study, workload, title, key, frame.marker_by_accelerator_kind(mlperf_study)
    )
    _draw_system_markers(left, mlperf_study, workload.systems, [each.speedup for each in workload.systems])
    _draw_system_markers(right, mlperf_study, workload.systems, [each.efficiency for each in workload.systems])
    _draw_ideal_speedup(left, workload)
    right.axhline(1, color=BASELINE_GREY, linestyle="--", linewidth=1)
    for axes, name, unit in ((left, "speedup", TIMES_SIGN), (right, "efficiency E'", "")):
        _set_up_vertical_axis(axes, name, unit)
        frame.set_up_accelerator_count_axis(axes, [each.result.accelerator_count for each in workload.systems])
    return CaptionedFigure(f"comparison-{workload.benchmark}", title, CAPTION, make_speedup_table(workload), figure)


def make_speedup_table(workload: WorkloadComparison) -> pd.DataFrame:
    """Return a table of speedup, efficiency and relative size of a workload's systems.

    Speedup, efficiency and size are relative to the reference system of the workload.
    """
    return pd.DataFrame(
        {
            **{name: getattr(each.result, name) for name in ("benchmark", "submitter", "system", "accelerator")},
            "accelerator_kind": each.result.accelerator_kind,
            "accelerator_count": each.result.accelerator_count,
            "unit": each.result.unit,
            "minutes": each.result.minutes,
            "size": each.accelerator_ratio,
            "speedup": each.speedup,
            "efficiency": each.efficiency,
            **dict(zip(FAMILY_COLUMNS, workload.family_efficiency(each.result), strict=True)),
        }
        for each in workload.systems
    )


def _format_speedup_title(workload: WorkloadComparison) -> str:
    top = max(workload.systems, key=lambda each: each.speedup)
    others = [each for each in workload.systems if each.result != workload.reference]
    above = sum(each.efficiency > 1 for each in others)
    return (
        f"{workload.name}: {top.result.accelerator_count:,} accelerators are {format_number(top.speedup)} times "
        f"as fast as {top.reference.accelerator_count} (E' = {format_number(top.efficiency)}); "
        f"{above} of {len(others)} systems have E' above 1"
    )


def _draw_system_markers(
    axes: Axes, mlperf_study: MlperfStudy, compared_systems: Sequence[ComparedResult], y_values: Sequence[float]
) -> None:
    tint, shape = frame.colour_by_accelerator_kind(mlperf_study), frame.marker_by_accelerator_kind(mlperf_study)
    for each, height in zip(compared_systems, y_values, strict=True):
        count, kind = each.result.accelerator_count, each.result.accelerator_kind
        axes.plot(count, height, color=tint[kind], marker=shape[kind], markersize=6, **frame.MARK_STYLE)
        if each.result == each.reference:
            axes.plot(count, height, "o", markersize=12, markerfacecolor="none", color=FOREGROUND)


def _draw_ideal_speedup(axes: Axes, workload: WorkloadComparison) -> None:
    base = workload.reference.accelerator_count
    most = max(each.result.accelerator_count for each in workload.systems)
    axes.plot([base, most], [1, most / base], color=BASELINE_GREY, linestyle="--", linewidth=1)


def _set_up_vertical_axis(axes: Axes, quantity_name: str, unit: str) -> None:
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{unit}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(quantity_name)
