"""Which strategy reaches the target first?"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import INK, PAPER, canvas, colour, frame
from analysis.report.headline import WinnerComparison, compare_winner
from analysis.report.wording import format_number
from analysis.results.result import TrialGroup

ROW_IN = 0.27  # height of one bar


def time_to_target(run: Run) -> Drawing | None:
    """Bars of the olympic mean, every run as a dot, misses as open marks where the run gave up."""
    target = run.summary.target
    found = sorted(
        run.summary.groups, key=lambda group: (not group.has_reached_target, group.time_to_target_s, _cap(group))
    )
    if target is None or not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.5 + ROW_IN * len(found))
    for row, group in enumerate(found):
        _bar(axes, row, group, colour(run.summary, group.strategy))
    axes.set_yticks(range(len(found)), [group.name for group in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.12 * max(_cap(group) for group in found) or 1)
    axes.set_xlabel(f"virtual seconds to {target}")
    title = _title(compare_winner(run.summary), target)
    frame(figure, run.summary, title)
    caption = (
        "Bars: olympic mean over the repeats (fastest and slowest dropped from three on). Dots: single runs. "
        "Open marks: runs that ended without reaching the target, drawn where they ended."
    )
    return Drawing("time_to_target", title, caption, _table(found), figure)


def _title(outcome: WinnerComparison | None, target: str) -> str:
    if outcome is None or outcome.time_metric != "time_to_target":
        return f"No strategy reaches {target}"
    return outcome.description


def _cap(group: TrialGroup) -> float:
    return max(trial.time_to_target_s or trial.seconds or 0.0 for trial in group.trials)


def _bar(axes: Axes, row: int, group: TrialGroup, tint: str) -> None:
    mean = group.time_to_target_s
    if np.isfinite(mean):
        axes.barh(row, mean, height=0.66, color=tint)
        axes.annotate(
            f"{format_number(mean)} s",
            (_cap(group), row),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    else:
        axes.annotate("missed", (_cap(group), row), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
    for trial in group.trials:
        hit = trial.time_to_target_s
        fill = PAPER if hit is None else INK
        axes.plot(hit or trial.seconds or 0.0, row, "o", color=INK, markerfacecolor=fill, markersize=3.5)


def _table(found: list[TrialGroup]) -> pd.DataFrame:
    rows = [
        (trial.id, group.strategy, group.condition, group.workers, trial.repeat, trial.time_to_target_s, trial.seconds)
        for group in found
        for trial in group.trials
    ]
    return pd.DataFrame(
        rows, columns=["trial", "strategy", "condition", "workers", "repeat", "time_to_target_s", "seconds"]
    )
