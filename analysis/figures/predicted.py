"""Does theory explain the measured step?"""

from collections.abc import Sequence
from statistics import median

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.style import FAINT, INK, PAPER, canvas, colour, frame
from analysis.result import Group, by_step
from analysis.wording import difference

ROW_IN = 0.27
EXACT = 0.001  # a remainder that nobody needs to hear of


def predicted(run: Run) -> Drawing | None:
    """Per strategy and N: predicted step as a ring, measured median as a dot, the unexplained remainder beside it."""
    found = by_step([group for group in run.summary.groups if group.typical_step_s and group.predicted_step_s])
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.5 + ROW_IN * len(found))
    title = _title(found)
    frame(figure, run.summary, title)
    for row, group in enumerate(found):
        _pair(axes, row, group, colour(run.summary, group.strategy))
    axes.set_yticks(range(len(found)), [group.name for group in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(0, 1.12 * max(1000 * max(_both(group)) for group in found))
    axes.set_xlabel("virtual milliseconds per step")
    caption = (
        "Ring: the closed form's median over all steps of all workers. Dot: the measured one, mean over the repeats; "
        "between two exchanges a step counts as their mean. Number: remainder = measured / predicted - 1. A growing "
        "remainder is something that the model does not know."
    )
    return Drawing("predicted", title, caption, _table(found), figure)


def remainder(group: Group) -> float:
    """Measured / predicted - 1."""
    measured, told = _both(group)
    return measured / told - 1


def _both(group: Group) -> tuple[float, float]:
    return group.typical_step_s or 0.0, group.predicted_step_s or 0.0


def _title(found: Sequence[Group]) -> str:
    worst = max(found, key=lambda group: abs(remainder(group)))
    if abs(remainder(worst)) < EXACT:
        return "The closed form tells every median step to within 0.1%"
    way = "more" if remainder(worst) > 0 else "less"
    most = f"{worst.name} takes {abs(remainder(worst)):.1%} {way} than it says"
    middle = median(abs(remainder(group)) for group in found)
    return f"The closed form is typically {middle:.1%} off the median step; at worst, {most}"


def _pair(axes: Axes, row: int, group: Group, tint: str) -> None:
    measured, told = (1000 * seconds for seconds in _both(group))
    axes.hlines(row, min(measured, told), max(measured, told), color=FAINT, linewidth=3)
    axes.plot(told, row, "o", color=INK, markerfacecolor=PAPER, markersize=8, markeredgewidth=1.2)
    axes.plot(measured, row, "o", color=tint, markersize=5)
    axes.annotate(
        difference(remainder(group)),
        (max(measured, told), row),
        (9, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _table(found: Sequence[Group]) -> pd.DataFrame:
    rows = [(group.strategy, group.condition, group.workers, *_both(group), remainder(group)) for group in found]
    return pd.DataFrame(
        rows, columns=["strategy", "condition", "workers", "measured_step_s", "predicted_step_s", "remainder"]
    )
