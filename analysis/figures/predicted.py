"""Does theory explain the measured step?"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.style import FAINT, INK, PAPER, canvas, colour, frame
from analysis.phases import phases
from analysis.plan import PlanView
from analysis.result import Group
from analysis.wording import difference

ROW_IN = 0.27
EXACT = 0.001  # a remainder that nobody needs to hear of


@dataclass(frozen=True)
class Row:
    """One closed form and what was measured under it: a group's, or one strategy's of a group that switches."""

    group: Group
    name: str
    measured_s: float
    predicted_s: float
    slowest: bool = False  # whether the form is that of the slowest worker alone

    @property
    def remainder(self) -> float:
        """Measured / predicted - 1."""
        return self.measured_s / self.predicted_s - 1


def predicted(run: Run) -> Drawing | None:
    """Per strategy and N: predicted step as a ring, measured median as a dot, the unexplained remainder beside it."""
    slowest = _slowest_workers(run)
    found = [row for group in run.summary.groups for row in _rows(group, slowest)]
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.5 + ROW_IN * len(found))
    title = _title([row for row in found if not row.slowest])
    frame(figure, run.summary, title)
    for place, row in enumerate(found):
        _pair(axes, place, row, colour(run.summary, row.group.strategy))
    axes.set_yticks(range(len(found)), [f"{row.name}{'*' * row.slowest}" for row in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(0, 1.12 * max(1000 * max(row.measured_s, row.predicted_s) for row in found))
    axes.set_xlabel("virtual milliseconds per step")
    caption = (
        "Ring: the closed form's step time. Dot: median measured step, mean over the repeats. "
        "Number: remainder = measured / predicted - 1. A growing remainder is something that the model does not know."
        + (
            " *: workers differ and do not wait; the form is the slowest one's, and the title leaves it out."
            * any(row.slowest for row in found)
        )
    )
    return Drawing("predicted", title, caption, _table(found), figure)


def _rows(group: Group, slowest: set[tuple[str, str, int, str]]) -> list[Row]:
    """One row, or one for each strategy where they switch; none where nothing is known."""
    key = (group.strategy, group.condition, group.workers)
    switched = [trial.switch for trial in group.trials if trial.switch and trial.switch.switched]
    if not switched:
        whole = group.step_s and group.predicted_step_s
        told = group.step_s or 0.0, group.predicted_step_s or 0.0
        return [Row(group, group.name, *told, (*key, "") in slowest)] if whole else []
    rows = []
    for when in ("before", "after"):
        halves = [half for each in switched if (half := getattr(each, when)) and half.predicted_step_s]
        if halves:
            measured_s = float(np.mean([half.step_s for half in halves]))
            rows.append(
                Row(group, f"{group.name} {when}", measured_s, halves[0].predicted_step_s, (*key, when) in slowest)
            )
    return rows


def _slowest_workers(run: Run) -> set[tuple[str, str, int, str]]:
    """Whose closed form is only the slowest worker's: unequal workers that do not wait for each other."""
    pairs = zip(run.table.trials, run.summary.trials, strict=True)
    return {
        (result.strategy, result.condition, result.workers, phase.name)
        for table, result in pairs
        for phase in phases(table)
        if phase.synchrony == "asynchronous" and _differ(table.plan)
    }


def _differ(planned: PlanView) -> bool:
    own = [node for node in planned.nodes if node.role == "worker"]
    return len({(node.throughput, node.cpus, node.uplink_bps, node.downlink_bps) for node in own}) > 1


def _title(found: Sequence[Row]) -> str:
    if not found:
        return "No closed form holds for workers that differ and do not wait"
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
        difference(row.remainder),
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
