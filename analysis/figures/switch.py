"""Did the switch pay, and where did what it gained come from?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import INK, canvas, frame
from analysis.metrics.switch import (
    SwitchResult,
    describe_repeat_outcomes,
    describe_switch,
    median_switch,
    switch_table_row,
)
from analysis.results.result import TrialResult

ROW_IN = 0.34
PARTS = {  # field of a gain -> what it is called, its colour
    "straggler_s": ("no wait for the slowest (measured)", "#5b7083"),
    "shares_s": ("larger shares of fewer workers (computed)", "#b8a13a"),
    "latency_s": ("latency (computed)", "#94b49f"),
    "bandwidth_s": ("bandwidth (computed)", "#e3a04f"),
    "queueing_s": ("queueing and the rest (measured)", "#cc79a7"),
    "finish_s": ("unequal finish at the end (measured)", "#8c8c3f"),
    "stale_s": ("staleness: samples to the target (measured)", "#7a5195"),
}


def switch(run: Run) -> Drawing | None:
    """Per switching trial: seconds per global batch that the switch saved, by cause; to the left of zero it cost."""
    found = [(trial, trial.switch) for trial in run.summary.trials if trial.switch and trial.is_finished]
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.9 + ROW_IN * len(found))
    title = _title(found)
    promoted = any(each.gain and each.gain.shares_s for _, each in found)
    frame(figure, run.summary, title, dict(part for name, part in PARTS.items() if promoted or name != "shares_s"))
    for row, (_, each) in enumerate(found):
        _bars(axes, row, each)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(found)), [trial.id for trial, _ in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("virtual milliseconds saved per global batch")
    caption = (
        "A batch before the switch less a batch after it, by cause; left of zero the switch cost. Waiting and the "
        "whole exchange are measured from the steps of both phases; latency and bandwidth are the difference of the "
        "closed forms, and queueing is what they leave of the exchange. Unequal finish: workers that are done while "
        "others are not, and what lies between steps. Staleness: the samples to the target that a "
        "trial of the strategy before with the same seed did not need, where there is one. Dot: the sum, hollow where "
        "quality was lost. n*: workers "
        "that fill the servers' links, by the closed form."
    )
    return Drawing("switch", title, caption, _table(found), figure)


def _title(found: Sequence[tuple[TrialResult, SwitchResult]]) -> str:
    first, _ = found[0]
    alike = [each for trial, each in found if (trial.strategy, trial.workers) == (first.strategy, first.workers)]
    often = describe_repeat_outcomes(alike)
    return f"{first.strategy}: {describe_switch(median_switch(alike), first.workers)}" + (f"; {often}" if often else "")


def _bars(axes: Axes, row: int, found: SwitchResult) -> None:
    limit = "" if found.break_even_workers is None else f"  n* = {found.break_even_workers:,.1f}"
    if found.gain is None:
        axes.annotate(f"{found.outcome}{limit}", (0, row), (6, 0), textcoords="offset points", va="center", fontsize=8)
        return
    ends = {1: 0.0, -1: 0.0}
    parts_s = {**vars(found.gain), "stale_s": -(found.stale_s or 0.0)}
    for name, (_, tint) in PARTS.items():
        saved_ms = 1e3 * parts_s[name]
        way = 1 if saved_ms >= 0 else -1
        axes.barh(row, saved_ms, left=ends[way], color=tint, height=0.6)
        ends[way] += saved_ms
    sum_ms = ends[1] + ends[-1]
    axes.plot(sum_ms, row, "o", color=INK, markersize=4, markerfacecolor="none" if found.has_lost_quality else INK)
    note = f"{sum_ms:+.3g} ms{limit}{'  quality was lost' if found.has_lost_quality else ''}"
    axes.annotate(note, (ends[1], row), (6, 0), textcoords="offset points", va="center", fontsize=8)


def _table(found: Sequence[tuple[TrialResult, SwitchResult]]) -> pd.DataFrame:
    rows = [
        {
            "trial": trial.id,
            "workers": trial.workers,
            **switch_table_row(each),
            "break_even_workers": each.break_even_workers,
        }
        for trial, each in found
    ]
    return pd.DataFrame(rows).replace({None: np.nan})
