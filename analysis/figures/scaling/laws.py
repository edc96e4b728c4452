"""Figure `laws`: scaling laws fitted to the measured speedup of every strategy.

The figure shows confidence intervals of the laws.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis import laws
from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.laws.base import UNIDENTIFIED_RATIO
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.wording import TIMES_SIGN, capitalise_first_letter, format_number, format_percentage, join_names
from analysis.results.trial_group import TrialGroup
from analysis.statistics.centre import Floats

MIN_FITTED_SIZES = 4  # one more than the three parameters of the USL, so that a residual is left to judge the fit by
MIN_DISTINCT_BATCHES = 3  # with fewer, a law of two parameters fits any data
MAX_PANELS = 6  # the first curves are drawn; the caption names the others
MAX_PANEL_COLUMNS = 2
DRAWN_RANGE_FACTOR = 2.0  # largest drawn number of workers / largest measured number of workers
NEGLIGIBLE_ERROR = 0.001  # smaller errors are not written with their value
HEADROOM_FACTOR = 4.0  # upper limit of the y axis / largest speedup: room for the notes
POINTS_PER_CURVE = 40  # places at which a law is evaluated
NOTE_LINE_BREAK = "\n    "  # before the second quantity of a law, indented below its name
SPEEDUP_LAWS: dict[str, tuple[laws.ScalingLaw, str]] = {  # name -> law and its line style
    "Amdahl": (laws.AmdahlLaw(), "--"),
    "Gustafson": (laws.GustafsonLaw(), ":"),
    "USL": (laws.UniversalScalabilityLaw(), "-"),
}
# law -> quantity that the figure reports -> how it is computed from the law's parameters
REPORTED_QUANTITIES: dict[str, dict[str, Callable[[Floats], Floats]]] = {
    "Amdahl": {"serial share": lambda theta: theta[..., 1] / (theta[..., 0] + theta[..., 1])},
    "Gustafson": {"serial share": lambda theta: theta[..., 1] / (1 + theta[..., 1])},
    "USL": {"contention": lambda theta: theta[..., 1], "coherency": lambda theta: theta[..., 2]},
    "learning": {"B_noise": lambda theta: theta[..., 1]},
    "computing": {"seconds per sample": lambda theta: theta[..., 1]},
    "exchange": {
        "seconds per message": lambda theta: theta[..., 0],
        "links' stretch": lambda theta: theta[..., 1],
    },
}
LEGEND_COLOURS = {"measured": style.FOREGROUND, "outside the calibrated domain": style.FAINT_GREY}


@dataclass(frozen=True)
class FittedSpeedupCurve:
    """Measured speedup curve of a strategy, and the scaling laws fitted to its times.

    The times are those for an equal number of samples.
    """

    curve: SpeedupCurve
    law_fits: Mapping[str, laws.LawFit]  # by the names in SPEEDUP_LAWS
    fits_of_time_components: Mapping[str, laws.LawFit]  # of components: "learning", "computing", "exchange"

    @cached_property
    def best_law_name(self) -> str:
        """Name of the fitted law with the smallest residual error on the curve."""
        return min(self.law_fits, key=lambda name: _residual_rms_error(self.law_fits[name]))


def draw_scaling_laws(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the measured speedup of every strategy and the scaling laws fitted to this speedup.

    Speedup is in samples per second. Numbers of workers above the largest measured one are grey. None if no
    strategy ran on at least `MIN_FITTED_SIZES` numbers of workers.
    """
    curves = [curve for curve in run.summary.curves if _can_fit_laws_to_curve(curve)]
    fitted_curves = [_fit_laws_to_curve(curve, run) for curve in curves[:MAX_PANELS]]
    if not fitted_curves:
        return None
    columns = min(MAX_PANEL_COLUMNS, len(fitted_curves))
    rows = -(-len(fitted_curves) // columns)
    figure, panels = style.create_figure(rows, columns, 1.3 + 3.0 * rows)
    title = _figure_title(fitted_curves)
    legend_colours = {**LEGEND_COLOURS, **dict.fromkeys(SPEEDUP_LAWS, style.FOREGROUND)}
    line_styles = {name: line_style for name, (_, line_style) in SPEEDUP_LAWS.items()}
    style.add_run_title_and_footer(figure, run.summary, title, legend_colours, {"measured": "o"}, line_styles)
    for axes, fitted_curve in zip(panels, fitted_curves, strict=False):
        strategy = fitted_curve.curve.strategy
        colour, marker = style.strategy_colour(run.summary, strategy), style.strategy_marker(run.summary, strategy)
        _draw_fitted_laws_panel(axes, fitted_curve, colour, marker)
    for axes in panels[len(fitted_curves) :]:
        axes.remove()
    caption = _figure_caption(fitted_curves, join_names(curve.description for curve in curves[MAX_PANELS:]))
    return CaptionedFigure("laws", title, caption, _figure_data(fitted_curves), figure)


def _figure_caption(fitted_curves: Sequence[FittedSpeedupCurve], omitted_curve_names: str) -> str:
    return (
        "Speedup in samples per second over the base of the curve. Laws are fitted to the logarithms of the mean times "
        "at the measured sizes; 95% intervals come from perturbed refits; error: typical residual. Band: 90% "
        f"prediction interval of {_describe_prediction_band(fitted_curves)} by the law that fits best. Grey area: no "
        "size was measured there, and the band does not contain what the law leaves out. "
        f"{laws.AmdahlLaw.formula}; {laws.GustafsonLaw.formula}; {laws.UniversalScalabilityLaw.formula}. "
        "Efficiency = hardware x statistical, so the cost of learning is fitted separately: samples to the target by "
        f"{laws.CriticalBatchLaw.formula} where batches differ. Computing: {laws.StepTimeLaw.formula}. Exchange of a "
        f"collective, with the time that workers wait for each other: {laws.ExchangeTimeLaw.formula}, where m is the "
        "number of messages in its longest chain and w the time that its bytes take on the declared links."
        f"{f' Neither drawn nor fitted: {omitted_curve_names}.' if omitted_curve_names else ''}"
    )


def _describe_prediction_band(fitted_curves: Sequence[FittedSpeedupCurve]) -> str:
    """Return text that states what the prediction band of a scaling law predicts.

    The band predicts a single new run, or the mean of several new runs.

    Where runs were repeated, laws are fitted to means over the repeats. Such means vary less than single runs.
    """
    has_repeats = any(point.runs > 1 for fitted_curve in fitted_curves for point in fitted_curve.curve.points)
    return "a new mean of as many repeats" if has_repeats else "a new run"


def _can_fit_laws_to_curve(curve: SpeedupCurve) -> bool:
    return len(curve.points) >= MIN_FITTED_SIZES and all(point.rate_speedup > 0 for point in curve.points)


def _fit_laws_to_curve(speedup_curve: SpeedupCurve, run: AnalysedRun) -> FittedSpeedupCurve:
    sizes = np.array([point.workers for point in speedup_curve.points], dtype=float)
    seconds = np.array([speedup_curve.base.seconds / point.rate_speedup for point in speedup_curve.points])
    series = {"workers": sizes, "seconds": seconds}
    fits = {name: law.fit(series) for name, (law, _) in SPEEDUP_LAWS.items()}
    return FittedSpeedupCurve(speedup_curve, fits, dict(_fit_samples_compute_and_exchange_laws(speedup_curve, run)))


def _fit_samples_compute_and_exchange_laws(curve: SpeedupCurve, run: AnalysedRun) -> Iterator[tuple[str, laws.LawFit]]:
    """Yield scaling laws of the samples to target, of the compute time and of the exchange time.

    A law is left out if the run lacks the data for it.

    The learning law depends on the global batch, the computing law on the batch of one worker. To fit either law, the
    trials must differ in this batch.
    """
    batch_of_trial = {trial.plan.trial: float(trial.plan.batch) for trial in run.table.trials}
    key = (curve.strategy, curve.condition)
    groups = [group for group in run.summary.trial_groups if (group.strategy, group.condition) == key]
    global_batches = np.array([batch_of_trial[group.trials[0].id] for group in groups])
    local_batches = global_batches / np.array([group.workers for group in groups])
    if curve.of == "time_to_target" and _can_fit_batch_law(global_batches):
        samples = np.array([group.mean_samples_to_target for group in groups])
        yield "learning", laws.CriticalBatchLaw().fit({"batch": global_batches, "samples": samples})
    compute_s = np.array([group.mean_s_by_step_phase.get("compute", 0.0) for group in groups])
    if _can_fit_batch_law(local_batches) and compute_s.all():
        yield "computing", laws.StepTimeLaw().fit({"local_batch": local_batches, "step_seconds": compute_s})
    measurements = _make_exchange_law_data(groups, run).items()
    exchange_series = {column: values for column, values in measurements if len(values) >= MIN_DISTINCT_BATCHES}
    if exchange_series and all((values > 0).all() for values in exchange_series.values()):
        yield "exchange", laws.ExchangeTimeLaw().fit(exchange_series)


def _make_exchange_law_data(trial_groups: Sequence[TrialGroup], analysed_run: AnalysedRun) -> dict[str, Floats]:
    """Return the data of a strategy to which `ExchangeTimeLaw` is fitted.

    The data are message counts, transfer times and exchange times.

    Each array has one value per group of trials. Groups are left out if they do not use a collective in every step, or
    if they switch strategies.
    """
    plans = {trial.plan.trial: trial.plan for trial in analysed_run.table.trials}
    rows = [
        (
            plan.critical_path_message_count,
            plan.predicted_exchange_without_latency_s,
            sum(group.mean_s_by_step_phase.get(phase, 0.0) for phase in ("exchange", "wait")),
        )
        for group in trial_groups
        if (plan := plans[group.trials[0].id]).schedule.rounds
        and plan.exchange_period == 1
        and plan.predicted_exchange_without_latency_s >= 0  # negative where compute hides the latency
        and not plan.second_phase
        and not plan.chooses_partners  # a wait for other workers is not a wait for messages
    ]
    columns = zip(*rows, strict=True)
    return dict(zip(("messages", "link_seconds", "exchange_seconds"), map(np.array, columns), strict=False))


def _can_fit_batch_law(batch_sizes: Floats) -> bool:
    return len(set(batch_sizes.tolist())) >= MIN_DISTINCT_BATCHES


def _residual_rms_error(law_fit: laws.LawFit) -> float:
    """Return the typical relative error of a fitted scaling law.

    The error is the root mean square of log residuals per degree of freedom.
    """
    return float(np.sqrt((law_fit.log_residuals**2).sum() / max(law_fit.degrees_of_freedom, 1)))


def _format_residual_error(law_fit: laws.LawFit) -> str:
    error = _residual_rms_error(law_fit)
    shown = format_percentage(max(error, NEGLIGIBLE_ERROR), 1)
    return shown if error >= NEGLIGIBLE_ERROR else f"less than {shown}"


def _figure_title(fitted_curves: Sequence[FittedSpeedupCurve]) -> str:
    """Return a title on the scaling law that best fits the least efficient strategy.

    The title names the law, its parameters and its fit error.
    """
    worst = min(fitted_curves, key=lambda each: each.curve.points[-1].throughput_efficiency(each.curve.base))
    fit = worst.law_fits[worst.best_law_name]
    best_fit = f"of three laws, {worst.best_law_name} fits the speed of {worst.curve.description} best"
    quantities = _describe_law_quantities(worst.best_law_name, fit)
    return capitalise_first_letter(f"{best_fit}, with an error of {_format_residual_error(fit)}: {quantities}")


def _draw_fitted_laws_panel(axes: Axes, fitted_curve: FittedSpeedupCurve, colour: str, marker: str) -> None:
    curve = fitted_curve.curve
    counts = [point.workers for point in curve.points]
    last_drawn = DRAWN_RANGE_FACTOR * counts[-1]
    sizes = np.geomspace(counts[0], last_drawn, POINTS_PER_CURVE)
    axes.axvspan(counts[-1], last_drawn, color=style.FAINT_GREY, alpha=0.35, linewidth=0)
    axes.plot(sizes, sizes / curve.base.workers, color=style.BASELINE_GREY, linewidth=0.9, linestyle=(0, (1, 3)))
    band = fitted_curve.law_fits[fitted_curve.best_law_name].prediction_band({"workers": sizes})
    axes.fill_between(sizes, curve.base.seconds / band.high, curve.base.seconds / band.low, color=colour, alpha=0.2)
    for name, (law, line_style) in SPEEDUP_LAWS.items():
        predicted_s = law.predict_output(fitted_curve.law_fits[name].parameters, {"workers": sizes})
        axes.plot(sizes, curve.base.seconds / predicted_s, color=style.FOREGROUND, linestyle=line_style, linewidth=1.1)
    axes.plot(counts, [point.rate_speedup for point in curve.points], marker, color=colour, markersize=6)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks([*counts, last_drawn], [*map(str, counts), f"{last_drawn:g}"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")  # a string: figures are pickled, and functions would not be
    axes.set_xlabel("workers")
    axes.set_ylabel("speedup, samples/s")
    axes.set_title(curve.description, color=colour, fontweight="bold")
    axes.set_ylim(top=HEADROOM_FACTOR * axes.get_ylim()[1])
    axes.text(0.02, 0.98, _panel_notes(fitted_curve), transform=axes.transAxes, va="top", fontsize=7, in_layout=False)


def _panel_notes(fitted_curve: FittedSpeedupCurve) -> str:
    """Return the text in a panel of the figure `laws`.

    The text lists each fitted law with its error and its quantities, such as the serial share.
    """
    notes = [
        f"{name}, error {_format_residual_error(fit)}: {_describe_law_quantities(name, fit, f',{NOTE_LINE_BREAK}')}"
        for name, fit in fitted_curve.law_fits.items()
    ]
    notes += [
        f"{name}: {_describe_law_quantities(name, fit, f',{NOTE_LINE_BREAK}')}"
        for name, fit in fitted_curve.fits_of_time_components.items()
    ]
    return "\n".join(notes)


def _describe_law_quantities(law_name: str, law_fit: laws.LawFit, separator: str = ", ") -> str:
    """Return text with the quantities of a fitted scaling law and their 95% intervals.

    For example: "serial share 0.1 [0.08, 0.12]".
    """
    return separator.join(
        f"{quantity} {_format_value_with_interval(*values)}"
        for quantity, values in _compute_law_quantities(law_name, law_fit).items()
    )


def _format_value_with_interval(low_end: float, value: float, high_end: float) -> str:
    """Format a value with its 95% interval.

    If the measurements do not determine the value, format only the upper end of the interval.
    """
    if high_end > UNIDENTIFIED_RATIO * low_end:
        return f"at most {format_number(high_end)}"
    return f"{format_number(value)} [{format_number(low_end)}, {format_number(high_end)}]"


def _compute_law_quantities(law_name: str, law_fit: laws.LawFit) -> dict[str, tuple[float, float, float]]:
    """Return quantities of a fitted scaling law, such as its serial share, by name.

    Each quantity is a tuple (low, value, high), where low and high are the ends of a 95% interval.
    """
    return {
        quantity: _add_95_percent_bounds(compute(law_fit.parameters), compute(law_fit.parameter_draws))
        for quantity, compute in REPORTED_QUANTITIES[law_name].items()
    }


def _add_95_percent_bounds(fitted_value: Floats, randomly_drawn_values: Floats) -> tuple[float, float, float]:
    low, high = np.percentile(randomly_drawn_values, [2.5, 97.5])
    return float(low), float(fitted_value), float(high)


def _figure_data(fitted_curves: Sequence[FittedSpeedupCurve]) -> pd.DataFrame:
    rows = [
        (
            *(fitted_curve.curve.strategy, fitted_curve.curve.condition, name, fit.law.formula, quantity, *values),
            *(_residual_rms_error(fit), *fit.size_range),
        )
        for fitted_curve in fitted_curves
        for name, fit in {**fitted_curve.law_fits, **fitted_curve.fits_of_time_components}.items()
        for quantity, values in _compute_law_quantities(name, fit).items()
    ]
    columns = ["strategy", "condition", "law", "formula", "quantity", "ci_low", "value", "ci_high", "residual"]
    return pd.DataFrame(rows, columns=[*columns, "smallest_seen", "largest_seen"])
