"""Does theory explain the measured step?"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import FAINT, INK, PAPER, canvas, colour, frame
from analysis.report.wording import format_signed_share
from analysis.results.result import TrialGroup, sort_by_step_time

ROW_IN = 0.27
EXACT = 0.001  # a remainder that nobody needs to hear of


@dataclass(frozen=True)
class Row:
    """One closed form and what was measured under it: a group's, or one strategy's of a group that switches."""

    group: TrialGroup
    name: str
    measured_s: float
    predicted_s: float

    @property
    def remainder(self) -> float:
        """Measured / predicted - 1."""
        return self.measured_s / self.predicted_s - 1


def predicted(run: Run) -> Drawing | None:
    """Per strategy and N: predicted step as a ring, measured median as a dot, the unexplained remainder beside it."""
    found = [row for group in sort_by_step_time(run.summary.groups) for row in _rows(group)]
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.5 + ROW_IN * len(found))
    title = _title(found)
    frame(figure, run.summary, title)
    for place, row in enumerate(found):
        _pair(axes, place, row, colour(run.summary, row.group.strategy))
    axes.set_yticks(range(len(found)), [row.name for row in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(0, 1.12 * max(1000 * max(row.measured_s, row.predicted_s) for row in found))
    axes.set_xlabel("virtual milliseconds per step")
    caption = (
        "Open: the closed form's median over all steps of all workers. Filled: the measured one, mean over repeats; "
        "the mean step where speeds vary; between two exchanges a step counts as their mean. Number: remainder = "
        "measured / predicted - 1. A growing remainder is something that the model does not know."
    )
    return Drawing("predicted", title, caption, _table(found), figure)


def _rows(group: TrialGroup) -> list[Row]:
    """One row, or one for each strategy where they switch; none where nothing is known."""
    switched = [trial.switch for trial in group.trials if trial.switch and trial.switch.has_switched]
    if not switched:
        whole = group.typical_step_s and group.predicted_step_s
        return [Row(group, group.name, group.typical_step_s or 0.0, group.predicted_step_s or 0.0)] if whole else []
    rows = []
    for when in ("before", "after"):
        halves = [half for each in switched if (half := getattr(each, when)) and half.predicted_step_s]
        if halves:
            measured_s = float(np.mean([half.step_s for half in halves]))
            rows.append(Row(group, f"{group.name} {when}", measured_s, halves[0].predicted_step_s))
    return rows


def _title(found: Sequence[Row]) -> str:
    worst = max(found, key=lambda row: abs(row.remainder))
    if abs(worst.remainder) < EXACT:
        return "The closed form tells every median step to within 0.1%"
    way = "more" if worst.remainder > 0 else "less"
    most = f"{worst.name} takes {abs(worst.remainder):.1%} {way} than it says"
    middle = median(abs(row.remainder) for row in found)
    return f"The closed form is typically {middle:.1%} off the median step; at worst, {most}"


def _pair(axes: Axes, place: int, row: Row, tint: str) -> None:
    measured, told = 1000 * row.measured_s, 1000 * row.predicted_s
    axes.hlines(place, min(measured, told), max(measured, told), color=FAINT, linewidth=3)
    axes.plot(told, place, "o", color=INK, markerfacecolor=PAPER, markersize=8, markeredgewidth=1.2)
    axes.plot(measured, place, "o", color=tint, markersize=5)
    axes.annotate(
        format_signed_share(row.remainder),
        (max(measured, told), place),
        (9, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _table(found: Sequence[Row]) -> pd.DataFrame:
    rows = [
        (row.group.strategy, row.group.condition, row.group.workers, row.measured_s, row.predicted_s, row.remainder)
        for row in found
    ]
    frame = pd.DataFrame(
        rows, columns=["strategy", "condition", "workers", "measured_step_s", "predicted_step_s", "remainder"]
    )
    names = [row.name.removeprefix(row.group.name).strip() for row in found]
    return frame.assign(phase=names) if any(names) else frame
