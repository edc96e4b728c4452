"""Did the switch pay, and where did what it gained come from?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.style import INK, canvas, frame
from analysis.metrics.switch import Switch, how_often, plain, told, typical
from analysis.result import TrialResult

ROW_IN = 0.34
PARTS = {  # field of a gain -> what it is called, its colour
    "straggler_s": ("no wait for the slowest (measured)", "#5b7083"),
    "latency_s": ("latency (computed)", "#94b49f"),
    "bandwidth_s": ("bandwidth (computed)", "#e3a04f"),
    "queueing_s": ("queueing and the rest (measured)", "#cc79a7"),
}


def switch(run: Run) -> Drawing | None:
    """Per switching trial: seconds per global batch that the switch saved, by cause; to the left of zero it cost."""
    found = [(trial, trial.switch) for trial in run.summary.trials if trial.switch]
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 1.9 + ROW_IN * len(found))
    title = _title(found)
    frame(figure, run.summary, title, dict(PARTS.values()))
    for row, (_, each) in enumerate(found):
        _bars(axes, row, each)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(found)), [trial.id for trial, _ in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("virtual milliseconds saved per global batch")
    caption = (
        "A batch before the switch less a batch after it, by cause; left of zero the switch cost. Waiting and the "
        "whole exchange are measured from the steps of both phases; latency and bandwidth are the difference of the "
        "closed forms, and queueing is what they leave of the exchange. Dot: the sum, measured. n*: workers from which "
        "on the servers are saturated, s·(t_c·B/S + 2), computed. What staleness costs shows in the samples that a "
        "strategy needs to the target, not here."
    )
    return Drawing("switch", title, caption, _table(found), figure)


def _title(found: Sequence[tuple[TrialResult, Switch]]) -> str:
    first, _ = found[0]
    alike = [each for trial, each in found if (trial.strategy, trial.workers) == (first.strategy, first.workers)]
    often = how_often(alike)
    return f"{first.strategy}: {told(typical(alike), first.workers)}" + (f"; {often}" if often else "")


def _bars(axes: Axes, row: int, found: Switch) -> None:
    limit = "" if found.break_even_workers is None else f"  n* = {found.break_even_workers:,.1f}"
    if found.gain is None:
        axes.annotate(f"{found.outcome}{limit}", (0, row), (6, 0), textcoords="offset points", va="center", fontsize=8)
        return
    ends = {1: 0.0, -1: 0.0}
    for name, (_, tint) in PARTS.items():
        saved_ms = 1e3 * getattr(found.gain, name)
        way = 1 if saved_ms >= 0 else -1
        axes.barh(row, saved_ms, left=ends[way], color=tint, height=0.6)
        ends[way] += saved_ms
    axes.plot(1e3 * found.gain.batch_s, row, "o", color=INK, markersize=4)
    note = f"{1e3 * found.gain.batch_s:+.3g} ms{limit}"
    axes.annotate(note, (ends[1], row), (6, 0), textcoords="offset points", va="center", fontsize=8)


def _table(found: Sequence[tuple[TrialResult, Switch]]) -> pd.DataFrame:
    rows = [
        {"trial": trial.id, "workers": trial.workers, **plain(each), "break_even_workers": each.break_even_workers}
        for trial, each in found
    ]
    return pd.DataFrame(rows).replace({None: np.nan})
