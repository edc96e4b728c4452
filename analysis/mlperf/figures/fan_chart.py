"""Figure of training times forecast by scaling laws, and of times observed on large systems.

The laws are fitted to small systems. Forecasts have bands.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing import style
from analysis.laws import LawFit
from analysis.mlperf.figures.frame import NOT_OFFICIAL_NOTICE, set_up_accelerator_count_axis
from analysis.mlperf.forecasts import BEST_BATCH, PARTS_KNOWN_BATCH, LawEvaluation
from analysis.mlperf.series import SECONDS_PER_MINUTE, ScalingSeries

EDGE_STYLE: dict[str, Any] = {"markeredgecolor": style.BACKGROUND, "markeredgewidth": 0.6}
PANEL_COLUMNS = 2
CURVE_POINTS = 60  # sizes at which a curve is computed
BAND_COLOUR, CLASSIC_COLOUR, KNOWN_BATCH_COLOUR = style.PALETTE[0], style.PALETTE[1], style.PALETTE[2]
LEGEND_COLOURS = {
    "used to fit the laws": style.FOREGROUND,
    "held out": style.FOREGROUND,
    "best batch: 50 and 90 %": BAND_COLOUR,
    "parts, batch known: 90 %": KNOWN_BATCH_COLOUR,
    "Amdahl": CLASSIC_COLOUR,
    "outside the calibrated domain": style.FAINT_GREY,
}
LEGEND_MARKERS = {"used to fit the laws": "o", "held out": "*", "parts, batch known: 90 %": "D"}
CAPTION = (
    "Accelerators x minutes to the target: a flat curve is ideal scaling. Dots: sizes that the laws are fitted to; "
    "stars: sizes held out. Blue: best batch, T = (sqrt(a/N) + sqrt(b))^2, from times alone, with 50 and 90 % bands "
    "for a new system; green: parts with the batch of the predicted point given, 90 %; red, dashed: Amdahl's law "
    "fitted to the same points. Grey: outside the calibrated domain, that is above the fitted sizes. Logarithmic axes."
)


def draw_forecast_fan_chart(
    law_evaluation: LawEvaluation, figure_title: str, mlperf_data_source_name: str
) -> CaptionedFigure:
    """Draw training times forecast by scaling laws, and observed times, one panel per workload."""
    rows = -(-len(law_evaluation.series) // PANEL_COLUMNS)
    figure, panels = style.create_figure(rows, PANEL_COLUMNS, 1.2 + 2.5 * rows)
    source = f"from {mlperf_data_source_name}  ·  {NOT_OFFICIAL_NOTICE}"
    style.add_title_and_footer(figure, figure_title, source, LEGEND_COLOURS, LEGEND_MARKERS)
    for axes, series in zip(panels, law_evaluation.series, strict=False):
        _draw_forecast_panel(axes, series, law_evaluation)
    for axes in panels[len(law_evaluation.series) :]:
        axes.remove()
    return CaptionedFigure("extrapolation-fan", figure_title, CAPTION, _make_forecast_table(law_evaluation), figure)


def _draw_forecast_panel(axes: Axes, series: ScalingSeries, law_evaluation: LawEvaluation) -> None:
    fit = law_evaluation.fits[BEST_BATCH][series.benchmark]
    counts = np.geomspace(series.accelerator_counts[0], 1.25 * series.accelerator_counts[-1], CURVE_POINTS)
    _shade_sizes_beyond_fit(axes, fit, float(counts[-1]))
    _draw_prediction_bands(axes, fit, counts)
    classic = law_evaluation.fits["Amdahl"][series.benchmark]
    cost = counts / SECONDS_PER_MINUTE * _predict_training_seconds(classic, counts)
    axes.plot(counts, cost, color=CLASSIC_COLOUR, linestyle="--", linewidth=1.2)
    for each in law_evaluation.forecasts_of(PARTS_KNOWN_BATCH, series.benchmark):
        count = 1.12 * each.workers  # beside the mark of the observation
        cost = each.workers / SECONDS_PER_MINUTE
        axes.vlines(count, cost * each.low, cost * each.high, color=KNOWN_BATCH_COLOUR, linewidth=1.4)
        axes.plot(count, cost * each.predicted, "D", color=KNOWN_BATCH_COLOUR, markersize=4)
    _draw_observed_times(axes, series, fit.size_range[1])
    axes.set_yscale("log", base=10)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("accelerator-minutes")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(series.name)
    set_up_accelerator_count_axis(axes, series.accelerator_counts)


def _shade_sizes_beyond_fit(axes: Axes, law_fit: LawFit, largest_accelerator_count: float) -> None:
    axes.axvspan(law_fit.size_range[1], 2 * largest_accelerator_count, color=style.FAINT_GREY, alpha=0.35, linewidth=0)


def _draw_prediction_bands(axes: Axes, law_fit: LawFit, accelerator_counts: np.ndarray) -> None:
    at, cost = {"workers": accelerator_counts}, accelerator_counts / SECONDS_PER_MINUTE
    for level, strength in ((90, 0.15), (50, 0.25)):
        band = law_fit.prediction_band(at, level)
        axes.fill_between(
            accelerator_counts, cost * band.low, cost * band.high, color=BAND_COLOUR, alpha=strength, linewidth=0
        )
    axes.plot(
        accelerator_counts,
        cost * _predict_training_seconds(law_fit, accelerator_counts),
        color=BAND_COLOUR,
        linewidth=1.4,
    )


def _predict_training_seconds(law_fit: LawFit, accelerator_counts: np.ndarray) -> np.ndarray:
    return law_fit.law.predict_output(law_fit.parameters, {"workers": accelerator_counts})


def _draw_observed_times(axes: Axes, scaling_series: ScalingSeries, largest_fitted_size: float) -> None:
    cost = [size.accelerators * size.minutes for size in scaling_series.points]
    for count, each in zip(scaling_series.accelerator_counts, cost, strict=True):
        shape, size = ("o", 5) if count <= largest_fitted_size else ("*", 10)
        axes.plot(count, each, shape, color=style.FOREGROUND, markersize=size, zorder=4, **EDGE_STYLE)


def _make_forecast_table(law_evaluation: LawEvaluation) -> pd.DataFrame:
    rows = [
        (
            *(each.series, each.law, each.fitted_to, each.workers),
            *(seconds / SECONDS_PER_MINUTE for seconds in (each.observed, each.predicted, each.low, each.high)),
        )
        for each in law_evaluation.forecasts
    ]
    columns = ["benchmark", "law", "fitted_to", "accelerators", "minutes", "predicted_minutes", "low_90", "high_90"]
    return pd.DataFrame(rows, columns=columns)
