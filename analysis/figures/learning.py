"""How does the model get better: by the clock, by samples, by steps, by bytes sent?"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import BASELINE, COLOURS, INK, canvas, colour, frame, from_zero, key_rows, line
from analysis.reading.plan_view import PlannedTarget
from analysis.reading.run_table import TrialTable
from analysis.report.answers import MAX_LISTED, TIE_RATIO
from analysis.report.wording import format_number, format_total_bytes
from analysis.results.result import TrialResult
from analysis.results.summary import RunSummary

MOST_LINES = 60  # of a panel: more than eyes follow; of many repeats the first are drawn
FOLLOWED = 8  # strategies that have colours where there are more strategies than colours
COLOURED: dict[str, Any] = {"linewidth": 1.4, "alpha": 0.9}
GREY: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.35, "zorder": 1.5}  # behind all others
AXES = {"time_s": "virtual seconds", "samples": "samples", "steps": "steps", "bytes": "bytes sent, all nodes"}


def learning(run: Run) -> Drawing | None:
    """Metric and loss against four axes: the same runs, so what differs between panels is what an axis costs.

    Shown are the baseline and each strategy on its largest number of workers; every repeat is a line. Where there are
    more strategies than colours, those have one that reach the target first.
    """
    shown = _shown(run)
    curves = (
        pd.concat([_curve(table, result) for table, result in shown], ignore_index=True) if shown else pd.DataFrame()
    )
    if curves.empty:
        return None
    target = next((table.plan.target for table, _ in shown if table.plan.target), None)
    metric = target.metric if target else str(curves["metric"].iloc[0])
    metrics = [name for name in dict.fromkeys((metric, "loss")) if name in set(curves["metric"])]
    names = curves[["strategy", "workers"]].drop_duplicates().itertuples(index=False)
    followed = _followed(run.summary)
    named = [(strategy, workers) for strategy, workers in names if strategy in followed]
    key = {f"{strategy} on {workers}": colour(run.summary, strategy) for strategy, workers in named}
    key |= {"others": BASELINE} if set(curves["strategy"]) - followed else {}
    height_in = 1.3 + 0.2 * key_rows(key) + 2.0 * len(metrics)
    figure, panels = canvas(len(metrics), len(AXES), height_in, sharey="row", sharex="col")
    title = _title(curves, metric, target)
    frame(figure, run.summary, title, key)
    for place, axes in enumerate(panels):
        name, axis = metrics[place // len(AXES)], list(AXES)[place % len(AXES)]
        _panel(axes, run, curves[curves["metric"] == name], axis, target if name == metric else None, followed)
        axes.set_ylabel(name if axis == "time_s" else "")
        axes.set_xlabel(AXES[axis] if name == metrics[-1] else "")
    from_zero(panels, x=True)
    caption = (
        "One line per run, the first repeats where there are many: the baseline and every strategy on its largest "
        "number of workers. "
        + (f"Grey: all but {FOLLOWED} of the first. " if "others" in key else "")
        + ("Dashed line: the target. " if target else "")
        + _conditions(run)
        + "Bytes are payload of all nodes up to the evaluation."
    )
    return Drawing("learning", title, caption, curves, figure)


def _followed(summary: RunSummary) -> frozenset[str]:
    """Strategies, and the baseline, that have colours which no other line has."""
    soonest = sorted(summary.groups, key=lambda group: (not group.has_reached_target, group.time_to_target_s))
    first: dict[str, str] = {}
    for group in soonest:
        first.setdefault(colour(summary, group.strategy), group.strategy)
    most = len(first) if len(summary.strategies) <= len(COLOURS) else FOLLOWED
    return frozenset(list(first.values())[:most])


def _shown(run: Run) -> list[tuple[TrialTable, TrialResult]]:
    finished = [(t, r) for t, r in zip(run.table.trials, run.summary.trials, strict=True) if r.is_finished]
    largest: dict[tuple[str, str], int] = {}
    for _, result in finished:
        kind = (result.strategy, result.condition)
        largest[kind] = max(largest.get(kind, 0), result.workers)
    shown = [(t, r) for t, r in finished if r.workers == largest[(r.strategy, r.condition)]]
    repeats = max(1, MOST_LINES // len(largest)) if largest else 0
    return [(t, r) for t, r in shown if r.repeat < repeats]


def _conditions(run: Run) -> str:
    if len(run.summary.conditions) < 2:  # noqa: PLR2004 -- one condition needs no telling apart
        return ""
    styles = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
    told = [f"{styles[line(run.summary, condition)]} {condition}" for condition in run.summary.conditions]
    return f"Line style: {', '.join(told)}. "


def _curve(table: TrialTable, result: TrialResult) -> pd.DataFrame:
    """The evaluations of a trial with the bytes that all nodes had sent by then."""
    ends = (table.steps["start_s"] + table.steps["step_s"]).to_numpy(dtype=float)
    order = np.argsort(ends, kind="stable")
    by_workers = np.concatenate([[0.0], np.cumsum(table.steps["bytes_sent"].to_numpy(dtype=float)[order])])
    share = by_workers / by_workers[-1] if by_workers[-1] else by_workers  # servers send in step with their workers
    done = np.searchsorted(ends[order], table.evals["time_s"].to_numpy(dtype=float) + 1e-9, side="right")
    steps = table.evals["samples"].astype(float) * result.steps / max(result.samples, 1)
    return table.evals[["time_s", "samples", "metric", "value"]].assign(
        steps=steps,
        bytes=share[done] * sum(result.bytes_sent.values()),
        trial=result.id,
        strategy=result.strategy,
        condition=result.condition,
        workers=result.workers,
    )


def _title(curves: pd.DataFrame, metric: str, target: PlannedTarget | None) -> str:
    """What the target costs in bytes and samples; without one, how far apart the runs end."""
    shown = curves[curves["metric"] == metric]
    hits = shown[[target is not None and target.is_reached_by(value) for value in shown["value"]]]
    first = hits.groupby(["strategy", "trial"], sort=False).first().groupby("strategy", sort=False)
    costs = first[["bytes", "samples"]].mean()
    costs = costs[costs["bytes"] > 0]
    if len(costs) > 1:
        missed = [name for name in shown["strategy"].unique() if name not in first.groups]
        second = _who_misses(missed) if missed else _most_samples(costs["samples"])
        return f"To {target}, {_least_bytes(costs['bytes'])}; {second}"
    ends = shown.groupby("trial", sort=False)["value"].last()
    return f"{metric.capitalize()} ends between {format_number(ends.min())} and {format_number(ends.max())}"


def _who_misses(missed: list[str]) -> str:
    """By name, where they are few."""
    if len(missed) > MAX_LISTED:
        return f"{len(missed)} strategies miss it"
    return f"{', '.join(missed)} misses it" if len(missed) == 1 else f"{', '.join(missed)} miss it"


def _least_bytes(sent: "pd.Series[float]") -> str:
    return f"{sent.idxmin()} sends least ({format_total_bytes({'all': int(sent.min())})})"


def _most_samples(needed: "pd.Series[float]") -> str:
    if needed.max() < TIE_RATIO * needed.min():
        return "all need about as many samples"
    return f"{needed.idxmax()} needs {needed.max() / needed.min():.1f} times the samples of {needed.idxmin()}"


def _panel(
    axes: Axes, run: Run, curves: pd.DataFrame, axis: str, target: PlannedTarget | None, followed: Collection[str]
) -> None:
    for _, trial in curves.groupby("trial", sort=False):
        strategy, condition = (str(trial.iloc[0][key]) for key in ("strategy", "condition"))
        style = line(run.summary, condition)
        if strategy in followed:
            axes.plot(trial[axis], trial["value"], color=colour(run.summary, strategy), linestyle=style, **COLOURED)
        else:
            axes.plot(trial[axis], trial["value"], color=BASELINE, linestyle=style, **GREY)
    if target is not None:
        axes.axhline(target.bound, color=INK, linestyle="--", linewidth=0.9)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.locator_params(axis="x", nbins=4)
