"""What laws that saw small systems say of large ones, beside what came."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import (
    BACKGROUND,
    FAINT_GREY,
    FOREGROUND,
    PALETTE,
    add_title_and_footer,
    create_figure,
)
from analysis.laws import LawFit
from analysis.mlperf.figures.frame import NOT_OFFICIAL, counts_axis
from analysis.mlperf.forecasts import OURS_KNOWN, OURS_UNKNOWN, Trial
from analysis.mlperf.series import MINUTE, Series

COLUMNS = 2
STEPS = 60  # places along a curve
BAND, CLASSIC, KNOWN = PALETTE[0], PALETTE[1], PALETTE[2]
KEY = {
    "seen by the laws": FOREGROUND,
    "held out": FOREGROUND,
    "best batch: 50 and 90 %": BAND,
    "parts, batch known: 90 %": KNOWN,
    "Amdahl": CLASSIC,
    "outside the calibrated domain": FAINT_GREY,
}
SHAPES = {"seen by the laws": "o", "held out": "*", "parts, batch known: 90 %": "D"}
CAPTION = (
    "Accelerators x minutes to the target: flat is ideal scaling. Dots: sizes that laws saw; stars: held out. Blue: "
    "best batch, T = (sqrt(a/N) + sqrt(b))^2, from times alone, with 50 and 90 % bands for a new system; green: parts "
    "with the batch of the point given, 90 %; red, dashed: Amdahl's law on the same points. Grey: outside the "
    "calibrated domain, where no law was fit. Logarithmic axes."
)


def fan(found: Trial, title: str, source: str) -> Drawing:
    """One panel per workload; `source`: whence the series come."""
    rows = -(-len(found.series) // COLUMNS)
    figure, panels = create_figure(rows, COLUMNS, 1.2 + 2.5 * rows)
    add_title_and_footer(figure, title, f"from {source}  ·  {NOT_OFFICIAL}", KEY, SHAPES)
    for axes, series in zip(panels, found.series, strict=False):
        _panel(axes, series, found)
    for axes in panels[len(found.series) :]:
        axes.remove()
    return Drawing("extrapolation-fan", title, CAPTION, _table(found), figure)


def _panel(axes: Axes, series: Series, found: Trial) -> None:
    fit = found.fits[OURS_UNKNOWN][series.benchmark]
    counts = np.geomspace(series.counts[0], 1.25 * series.counts[-1], STEPS)
    _outside(axes, fit, float(counts[-1]))
    _bands(axes, fit, counts)
    classic = found.fits["Amdahl"][series.benchmark]
    axes.plot(counts, counts / MINUTE * _told(classic, counts), color=CLASSIC, linestyle="--", linewidth=1.2)
    for each in found.of(OURS_KNOWN, series.benchmark):
        place = 1.12 * each.workers  # beside the observation, not under it
        cost = each.workers / MINUTE
        axes.vlines(place, cost * each.low, cost * each.high, color=KNOWN, linewidth=1.4)
        axes.plot(place, cost * each.predicted, "D", color=KNOWN, markersize=4)
    _observed(axes, series, fit.size_range[1])
    axes.set_yscale("log", base=10)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("accelerator-minutes")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(series.name)
    counts_axis(axes, series.counts)


def _outside(axes: Axes, fit: LawFit, last: float) -> None:
    axes.axvspan(fit.size_range[1], 2 * last, color=FAINT_GREY, alpha=0.35, linewidth=0)


def _bands(axes: Axes, fit: LawFit, counts: np.ndarray) -> None:
    at, cost = {"workers": counts}, counts / MINUTE
    for level, strength in ((90, 0.15), (50, 0.25)):
        band = fit.prediction_band(at, level)
        axes.fill_between(counts, cost * band.low, cost * band.high, color=BAND, alpha=strength, linewidth=0)
    axes.plot(counts, cost * _told(fit, counts), color=BAND, linewidth=1.4)


def _told(fit: LawFit, counts: np.ndarray) -> np.ndarray:
    return fit.law.predict(fit.parameters, {"workers": counts})


def _observed(axes: Axes, series: Series, seen: float) -> None:
    cost = [size.accelerators * size.minutes for size in series.sizes]
    for count, each in zip(series.counts, cost, strict=True):
        shape, size = ("o", 5) if count <= seen else ("*", 10)
        axes.plot(
            count,
            each,
            shape,
            color=FOREGROUND,
            markersize=size,
            markeredgecolor=BACKGROUND,
            markeredgewidth=0.6,
            zorder=4,
        )


def _table(found: Trial) -> pd.DataFrame:
    rows = [
        (
            *(each.series, each.law, each.fitted_to, each.workers),
            *(seconds / MINUTE for seconds in (each.observed, each.predicted, each.low, each.high)),
        )
        for each in found.forecasts
    ]
    columns = ["benchmark", "law", "fitted_to", "accelerators", "minutes", "predicted_minutes", "low_90", "high_90"]
    return pd.DataFrame(rows, columns=columns)
