"""How much faster are larger systems of one workload, and what do they make of their size?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import BASELINE_GREY, FOREGROUND, create_figure
from analysis.mlperf.figures.frame import colours, counts_axis, frame, markers
from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.references import Scaled
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_number
from analysis.results.result import TIMES_SIGN

HEIGHT_IN = 4.4
CAPTION = (
    "Left: speedup S = T(reference) / T; dashed: as many times faster as larger. Right: efficiency E' = S / (N / N of "
    "the reference); dashed: the reference's own. Above the line accelerators are faster than the reference's; work is "
    "not shared better than perfectly. All axes are logarithmic. A mark is a system; a kind has one colour and shape. "
    "Ringed: the reference."
)


def comparison(study: Study, workload: Workload) -> Drawing:
    """Speedup and E' against the number of accelerators, one mark per system."""
    present = {_kind(each) for each in workload.systems}
    key = {kind: tint for kind, tint in colours(study).items() if kind in present}
    figure, (left, right) = create_figure(1, 2, HEIGHT_IN)
    title = _title(workload)
    frame(figure, study, workload, title, key, markers(study))
    _marks(left, study, workload.systems, [each.speedup for each in workload.systems])
    _marks(right, study, workload.systems, [each.efficiency for each in workload.systems])
    _ideal(left, workload)
    right.axhline(1, color=BASELINE_GREY, linestyle="--", linewidth=1)
    for axes, name, unit in ((left, "speedup", TIMES_SIGN), (right, "efficiency E'", "")):
        _values_axis(axes, name, unit)
        counts_axis(axes, [each.result.accelerator_count for each in workload.systems])
    return Drawing(f"comparison-{workload.benchmark}", title, CAPTION, table(workload), figure)


def table(workload: Workload) -> pd.DataFrame:
    """All systems of a workload with what is derived from them."""
    return pd.DataFrame(
        {
            **{name: getattr(each.result, name) for name in ("benchmark", "submitter", "system", "accelerator")},
            "family": _kind(each),
            "accelerator_count": each.result.accelerator_count,
            "minutes": each.result.minutes,
            "size": each.size,
            "speedup": each.speedup,
            "efficiency": each.efficiency,
        }
        for each in workload.systems
    )


def _kind(each: Scaled) -> str:
    return family(each.result.accelerator)


def _title(workload: Workload) -> str:
    top = max(workload.systems, key=lambda each: each.speedup)
    others = [each for each in workload.systems if each.result != workload.reference]
    above = sum(each.efficiency > 1 for each in others)
    return (
        f"{workload.name}: {top.result.accelerator_count:,} accelerators are {format_number(top.speedup)} times as fast as "
        f"{top.reference.accelerator_count} (E' = {format_number(top.efficiency)}); "
        f"{above} of {len(others)} systems have E' above 1"
    )


def _marks(axes: Axes, study: Study, systems: Sequence[Scaled], heights: Sequence[float]) -> None:
    tint, shape = colours(study), markers(study)
    for each, height in zip(systems, heights, strict=True):
        kind = _kind(each)
        axes.plot(
            each.result.accelerator_count, height, color=tint[kind], marker=shape[kind], markersize=6, alpha=0.75,
            markeredgewidth=0, linestyle="none",
        )  # fmt: skip
        if each.result == each.reference:
            axes.plot(
                each.result.accelerator_count, height, "o", markersize=12, markerfacecolor="none", color=FOREGROUND
            )


def _ideal(axes: Axes, workload: Workload) -> None:
    base = workload.reference.accelerator_count
    most = max(each.result.accelerator_count for each in workload.systems)
    axes.plot([base, most], [1, most / base], color=BASELINE_GREY, linestyle="--", linewidth=1)


def _values_axis(axes: Axes, name: str, unit: str) -> None:
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{unit}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(name)
