"""What is the time of a step spent on?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import INK, PHASE_COLOURS, canvas, frame
from analysis.report.wording import format_number
from analysis.results.result import TrialGroup, sort_by_step_time

ROW_IN = 0.29


def step_breakdown(run: Run) -> Drawing | None:
    """Stacked mean phases per strategy and N; a mark where the closed form puts the end of the step."""
    found = sort_by_step_time([group for group in run.summary.groups if group.step_phase_s])
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.75 + ROW_IN * len(found))
    title = _title(found)
    frame(figure, run.summary, title, key=PHASE_COLOURS)
    for row, group in enumerate(found):
        _stack(axes, row, group)
    axes.set_yticks(range(len(found)), [group.name for group in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.13 * max(_extent_ms(group) for group in found) or 1)
    axes.set_xlabel("virtual milliseconds per step")
    caption = (
        "Means over workers, repeats and steps on whole batches, without an epoch's shorter last one. Exchange is "
        "communication that computing did not hide; wait is time blocked on peers. Upright mark: the closed form's "
        "mean over the same steps; none where all rounds between two exchanges have a shorter batch, and the bar is of "
        "all steps. At the end of each bar: share of the exchange."
    )
    return Drawing("step_breakdown", title, caption, _table(found), figure)


def _title(found: Sequence[TrialGroup]) -> str:
    largest = [group for group in found if not group.is_baseline and group.workers == max(g.workers for g in found)]
    if not largest:
        return "Nothing is exchanged: one worker computes alone"
    alike = [group for group in largest if group.condition == largest[0].condition]
    low, high = (pick(alike, key=_exchange_share) for pick in (min, max))
    if low == high:
        return f"{low.strategy} spends {_exchange_share(low):.0%} of a step exchanging on {low.workers} workers"
    return (
        f"On {low.workers} workers {low.strategy} exchanges for {format_number(_exchange_ms(low))} ms per step, "
        f"{high.strategy} for {format_number(_exchange_ms(high))} ms"
    )


def _exchange_ms(group: TrialGroup) -> float:
    return 1000 * group.step_phase_s["exchange"]


def _exchange_share(group: TrialGroup) -> float:
    return group.step_phase_s["exchange"] / max(sum(group.step_phase_s.values()), 1e-12)


def _extent_ms(group: TrialGroup) -> float:
    return 1000 * max(sum(group.step_phase_s.values()), group.predicted_mean_step_s or 0.0)


def _stack(axes: Axes, row: int, group: TrialGroup) -> None:
    left = 0.0
    for phase, tint in PHASE_COLOURS.items():
        width = 1000 * group.step_phase_s[phase]
        axes.barh(row, width, left=left, height=0.68, color=tint)
        left += width
    if group.predicted_mean_step_s:
        axes.vlines(1000 * group.predicted_mean_step_s, row - 0.42, row + 0.42, color=INK, linewidth=1.8)
    axes.annotate(
        f"{_exchange_share(group):.0%}",
        (_extent_ms(group), row),
        (6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _table(found: Sequence[TrialGroup]) -> pd.DataFrame:
    rows = [
        {
            "strategy": group.strategy,
            "condition": group.condition,
            "workers": group.workers,
            **{f"{phase}_s": seconds for phase, seconds in group.step_phase_s.items()},
            "predicted_step_s": group.predicted_mean_step_s,
        }
        for group in found
    ]
    return pd.DataFrame(rows)
