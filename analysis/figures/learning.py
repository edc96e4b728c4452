"""Figure `learning`: target metric and loss of every strategy during training.

The x axes are time, samples, steps and bytes sent.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.reading.run_table import TrialLogTables
from analysis.reading.training_phases import training_phases
from analysis.report.fastest import MAX_LISTED, TIE_RATIO
from analysis.report.wording import format_bytes, format_number
from analysis.results.summary import RunSummary
from analysis.results.trial_result import TrialResult
from analysis.statistics.centre import Floats
from services.scenario.target import QualityTarget

MAX_CURVES_PER_PANEL = 60  # more curves cannot be followed by eye; of many repeats only the first are drawn
MAX_METRICS = 4  # of a command that are drawn: the first ones of the scenario
MAX_COLOURED_STRATEGIES = 8  # where there are more strategies than colours
COLOURED_CURVE_STYLE: dict[str, Any] = {"linewidth": 1.4, "alpha": 0.9}
GREY_CURVE_STYLE: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.35, "zorder": 1.5}  # behind all other curves
# column of the data -> label of the x axis
X_AXIS_LABELS = {"time_s": "virtual seconds", "samples": "samples", "steps": "steps", "bytes": "bytes sent, all nodes"}


def draw_learning_curves(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the target metric and the loss against time, samples, steps and bytes sent.

    There is one panel per metric and x axis. Of a command, the declared metrics are drawn.

    All panels show the same trials: the baseline and each strategy on its largest number of workers, one curve per
    repeat. If there are more strategies than colours, only the strategies that reach the target first are coloured.
    """
    trials = _choose_drawn_trials(run)
    evaluations = [_learning_curve_of_trial(trial, result) for trial, result in trials]
    curves = pd.concat(evaluations, ignore_index=True) if evaluations else pd.DataFrame()
    if curves.empty:
        return None
    target = next((trial.plan.target for trial, _ in trials if trial.plan.target), None)
    evaluated = dict.fromkeys(map(str, curves["metric"]))
    declared = [name for trial, _ in trials for name in trial.plan.metric_names if name in evaluated]
    target_metric = target.metric if target else next(iter((*declared, *evaluated)))
    names = dict.fromkeys((target_metric, *declared[:MAX_METRICS], "loss"))
    metrics = [name for name in names if name in evaluated][:MAX_METRICS]
    coloured_strategies = _choose_coloured_strategies(run.summary)
    legend_colours = _legend_colours(run.summary, curves, coloured_strategies)
    height_in = 1.3 + 0.2 * style.count_legend_rows(legend_colours) + 2.0 * len(metrics)
    figure, panels = style.create_figure(len(metrics), len(X_AXIS_LABELS), height_in, sharey="row", sharex="col")
    title = _figure_title(curves, target_metric, target)
    style.add_run_title_and_footer(figure, run.summary, title, legend_colours)
    columns = [(metric, x_column) for metric in metrics for x_column in X_AXIS_LABELS]
    for axes, (metric, x_column) in zip(panels, columns, strict=True):
        metric_curves = curves[curves["metric"] == metric]
        metric_target = target if metric == target_metric else None
        _draw_learning_curve_panel(axes, run, metric_curves, x_column, metric_target, coloured_strategies)
        axes.set_ylabel(metric if x_column == "time_s" else "")
        axes.set_xlabel(X_AXIS_LABELS[x_column] if metric == metrics[-1] else "")
    style.start_axes_at_zero(panels, x=True)
    caption = (
        "One curve per run: the baseline and every strategy on its largest number of workers; of many repeats only the "
        "first. "
        + (
            f"Grey: all but {MAX_COLOURED_STRATEGIES} of the first to the target. "
            if "others" in legend_colours
            else ""
        )
        + ("Dashed horizontal line: the target. " if target else "")
        + _describe_line_styles(run)
        + "Bytes: message contents that all nodes sent up to the evaluation."
        + _describe_uncounted_bytes(trials)
    )
    return CaptionedFigure("learning", title, caption, curves, figure)


def _describe_uncounted_bytes(trials: Sequence[tuple[TrialLogTables, TrialResult]]) -> str:
    """Return caption text on the trials in which a node logged no total of its bytes; empty if there are none."""
    has_shard_owners = [bool(trial.plan.shard_owners) for trial, result in trials if result.uncounted_bytes_of]
    texts = []
    if False in has_shard_owners:
        texts.append(" Where a process was killed before it logged its total, only the bytes of finished steps count.")
    if True in has_shard_owners:
        texts.append(
            " Trials with servers in which a process was killed have no curve over bytes: its total is unknown."
        )
    return "".join(texts)


def _legend_colours(summary: RunSummary, curves: pd.DataFrame, coloured_strategies: Collection[str]) -> dict[str, str]:
    """Return the legend of the learning curves as a mapping from label to colour.

    Each coloured strategy has an entry. All other strategies share a grey entry.
    """
    pairs = curves[["strategy", "workers"]].drop_duplicates().itertuples(index=False)
    colours = {
        f"{strategy} on {workers}": style.strategy_colour(summary, strategy)
        for strategy, workers in pairs
        if strategy in coloured_strategies
    }
    return colours | ({"others": style.BASELINE_GREY} if set(curves["strategy"]) - set(coloured_strategies) else {})


def _choose_coloured_strategies(summary: RunSummary) -> frozenset[str]:
    """Return the names of the strategies whose learning curves are drawn in a colour.

    The names include the baseline. All other strategies are grey.

    If several strategies have the same colour, only the first of them to reach the target is coloured.
    """
    first_to_target = sorted(
        summary.trial_groups, key=lambda group: (not group.has_reached_target, group.time_to_target_s)
    )
    strategy_of_colour: dict[str, str] = {}
    for group in first_to_target:
        strategy_of_colour.setdefault(style.strategy_colour(summary, group.strategy), group.strategy)
    has_enough_colours = len(summary.strategies) <= len(style.PALETTE)
    limit = len(strategy_of_colour) if has_enough_colours else MAX_COLOURED_STRATEGIES
    return frozenset(list(strategy_of_colour.values())[:limit])


def _choose_drawn_trials(run: AnalysedRun) -> list[tuple[TrialLogTables, TrialResult]]:
    """Return the trials whose learning curves are drawn.

    For each strategy and set of swept values, these are the finished trials on the most workers.

    If there are more than `MAX_CURVES_PER_PANEL` such trials, only the first repeats are returned.
    """
    finished = [(t, r) for t, r in zip(run.table.trials, run.summary.trials, strict=True) if r.is_finished]
    most_workers: dict[tuple[str, str], int] = {}
    for _, result in finished:
        key = (result.strategy, result.condition)
        most_workers[key] = max(most_workers.get(key, 0), result.workers)
    largest = [(t, r) for t, r in finished if r.workers == most_workers[(r.strategy, r.condition)]]
    drawn_repeats = max(1, MAX_CURVES_PER_PANEL // len(most_workers)) if most_workers else 0
    return [(t, r) for t, r in largest if r.repeat < drawn_repeats]


def _describe_line_styles(run: AnalysedRun) -> str:
    """Return caption text that names the line style of each combination of swept values.

    The result is empty if there is only one.
    """
    if len(run.summary.swept_values) < 2:  # noqa: PLR2004 -- a single condition needs no line style
        return ""
    style_names = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
    styles = [
        f"{style_names[style.swept_values_line_style(run.summary, name)]} {name}" for name in run.summary.swept_values
    ]
    return f"Line style: {', '.join(styles)}. "


def _learning_curve_of_trial(trial: TrialLogTables, trial_result: TrialResult) -> pd.DataFrame:
    """Return the evaluations of a trial, with the steps done and bytes sent before each evaluation."""
    step_ends_s = _step_completion_times_s(trial)
    order = np.argsort(step_ends_s, kind="stable")
    step_bytes = np.concatenate([[0.0], np.cumsum(trial.steps["bytes_sent"].to_numpy(dtype=float)[order])])
    steps_done = np.searchsorted(step_ends_s[order], trial.evals["time_s"].to_numpy(dtype=float) + 1e-9, side="right")
    steps = trial.evals["samples"].astype(float) * trial_result.steps / max(trial_result.samples, 1)
    return trial.evals[["time_s", "samples", "metric", "value"]].assign(
        steps=steps,
        bytes=_scale_to_all_bytes(step_bytes, trial, trial_result)[steps_done],
        trial=trial_result.id,
        strategy=trial_result.strategy,
        condition=trial_result.condition,
        workers=trial_result.workers,
    )


def _scale_to_all_bytes(cumulative_step_bytes: Floats, trial: TrialLogTables, trial_result: TrialResult) -> Floats:
    """Return the bytes that all nodes have sent after each step, from those that workers have sent in steps.

    Servers log no bytes per step; their bytes are assumed to grow in proportion to those of the workers. If the total
    of a node is not known, the bytes in finished steps are returned, or NaN if servers or shard owners sent others.
    """
    if trial_result.uncounted_bytes_of:
        return cumulative_step_bytes * (np.nan if trial.plan.shard_owners else 1.0)
    in_steps = cumulative_step_bytes[-1]
    return cumulative_step_bytes * (sum(trial_result.bytes_sent.values()) / in_steps if in_steps else 1.0)


def _step_completion_times_s(trial: TrialLogTables) -> Floats:
    """Return the time from which each row of the step table counts as done, in the order of the table.

    An evaluation of synchronous training covers the whole step of all workers, although some workers may end the step
    a moment later than the evaluation worker. So all rows of a synchronous step count from the end of the first worker.
    """
    ends_s = (trial.steps["start_s"] + trial.steps["step_s"]).astype(float)
    for phase in training_phases(trial):
        if phase.sync_or_async == "synchronous":
            rows = phase.steps.index
            ends_s.loc[rows] = ends_s.loc[rows].groupby([phase.steps["step"], phase.steps["attempt"]]).transform("min")
    return np.asarray(ends_s, dtype=float)


def _figure_title(learning_curves: pd.DataFrame, metric: str, target: QualityTarget | None) -> str:
    """Return a title on the bytes and samples that strategies need for the target quality.

    The title names the strategies with the fewest bytes sent and with the most samples.

    Without a target, or if fewer than two strategies reach the target, the title is the range of the final values.
    """
    metric_curves = learning_curves[learning_curves["metric"] == metric]
    on_target = metric_curves[[target is not None and target.is_reached_by(value) for value in metric_curves["value"]]]
    first_on_target = on_target.groupby(["strategy", "trial"], sort=False).first().groupby("strategy", sort=False)
    costs = first_on_target[["bytes", "samples"]].mean()
    is_known = bool(costs["bytes"].notna().all())
    costs = costs[costs["bytes"] > 0]
    if len(costs) > 1 and is_known:
        missing = [name for name in metric_curves["strategy"].unique() if name not in first_on_target.groups]
        second = _describe_strategies_missing_target(missing) if missing else _samples_to_target_text(costs["samples"])
        return f"To reach {target}, {_describe_strategy_with_least_bytes(costs['bytes'])}; {second}"
    final_values = metric_curves.groupby("trial", sort=False)["value"].last()
    lowest, highest = format_number(final_values.min()), format_number(final_values.max())
    if lowest == highest:
        return f"The final {metric} is {lowest}{' in all trials' if len(final_values) > 1 else ''}"
    return f"The final {metric} is between {lowest} and {highest}"


def _describe_strategies_missing_target(strategy_names: list[str]) -> str:
    """Return a clause on the strategies that do not reach the target quality.

    The clause names the strategies if they are few, else it states their number.
    """
    if len(strategy_names) > MAX_LISTED:
        return f"{len(strategy_names)} strategies miss it"
    verb = "misses" if len(strategy_names) == 1 else "miss"
    return f"{', '.join(strategy_names)} {verb} it"


def _describe_strategy_with_least_bytes(bytes_by_strategy: "pd.Series[float]") -> str:
    return f"{bytes_by_strategy.idxmin()} sends least ({format_bytes(int(bytes_by_strategy.min()))})"


def _samples_to_target_text(samples_by_strategy: "pd.Series[float]") -> str:
    """Return a clause that compares strategies by their samples to the target quality.

    Compared are the strategies with the most and with the fewest samples.
    """
    ratio = samples_by_strategy.max() / samples_by_strategy.min()
    if samples_by_strategy.max() < TIE_RATIO * samples_by_strategy.min():
        return "all need about the same number of samples"
    return f"{samples_by_strategy.idxmax()} needs {ratio:.1f} times the samples of {samples_by_strategy.idxmin()}"


def _draw_learning_curve_panel(
    axes: Axes,
    run: AnalysedRun,
    learning_curves: pd.DataFrame,
    x_column: str,
    quality_target: QualityTarget | None,
    coloured_strategies: Collection[str],
) -> None:
    for _, trial_curve in learning_curves.groupby("trial", sort=False):
        strategy, condition = (str(trial_curve.iloc[0][key]) for key in ("strategy", "condition"))
        line_style = style.swept_values_line_style(run.summary, condition)
        is_coloured = strategy in coloured_strategies
        colour = style.strategy_colour(run.summary, strategy) if is_coloured else style.BASELINE_GREY
        curve_style = COLOURED_CURVE_STYLE if is_coloured else GREY_CURVE_STYLE
        axes.plot(trial_curve[x_column], trial_curve["value"], color=colour, linestyle=line_style, **curve_style)
    if quality_target is not None:
        axes.axhline(quality_target.required_value, color=style.FOREGROUND, linestyle="--", linewidth=0.9)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.locator_params(axis="x", nbins=4)
