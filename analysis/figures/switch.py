"""Figure `switch`: time that a trial saved by switching strategies, split by cause.

Times are per global batch.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import FOREGROUND, add_run_title_and_footer, create_figure
from analysis.metrics.strategy_changes.strategy_switch import (
    StrategySwitchResult,
    find_median_saving_switch,
    strategy_switch_table_row,
)
from analysis.metrics.strategy_changes.strategy_switch_text import describe_strategy_switch, describe_switch_outcomes
from analysis.results.trial_result import TrialResult

ROW_HEIGHT_IN = 0.34
GAIN_PARTS = {  # part of a gain -> its label and colour
    "straggler_s": ("no wait for the slowest worker (measured)", "#5b7083"),
    "shares_s": ("larger shares of fewer workers (computed)", "#b8a13a"),
    "latency_s": ("latency (computed)", "#94b49f"),
    "bandwidth_s": ("bandwidth (computed)", "#e3a04f"),
    "queueing_s": ("queueing and the rest (measured)", "#cc79a7"),
    "finish_s": ("unequal finish (measured)", "#8c8c3f"),
    "stale_s": ("staleness: samples to the target (measured)", "#7a5195"),
}


def draw_switch_time_savings(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the time that each trial saved by switching strategies, split by cause.

    Times are per global batch.

    Bars to the left of zero are times by which a global batch became longer.
    """
    switched_trials = [(trial, trial.switch) for trial in run.summary.trials if trial.switch and trial.is_finished]
    if not switched_trials:
        return None
    figure, (axes,) = create_figure(1, 1, 1.9 + ROW_HEIGHT_IN * len(switched_trials))
    title = _figure_title(switched_trials)
    has_promoted_workers = any(switch.gain and switch.gain.shares_s for _, switch in switched_trials)
    legend_colours = dict(part for name, part in GAIN_PARTS.items() if has_promoted_workers or name != "shares_s")
    add_run_title_and_footer(figure, run.summary, title, legend_colours)
    for y, (_, switch) in enumerate(switched_trials):
        _draw_time_saved_bars(axes, y, switch)
    axes.axvline(0, color=FOREGROUND, linewidth=1)
    axes.set_yticks(range(len(switched_trials)), [trial.id for trial, _ in switched_trials])
    axes.set_ylim(len(switched_trials) - 0.5, -0.5)
    axes.set_xlabel("virtual milliseconds saved per global batch")
    caption = (
        "Time of a global batch before the switch minus its time after, by cause; left of zero the switch cost time. "
        "Waiting and the whole exchange are measured from the steps of both training phases. Latency and bandwidth are "
        "the difference of the closed forms; queueing is the rest of the exchange. Unequal finish: time in which some "
        "workers have finished and others still work, and the time between steps. Staleness: samples to the target "
        "that a trial with the same seed needed less when it kept the strategy before the switch, where there is such "
        "a trial. Dot: the sum, hollow where quality was lost. n*: number of workers that fill the servers' links, by "
        "the closed form."
    )
    return CaptionedFigure("switch", title, caption, _make_figure_table(switched_trials), figure)


def _figure_title(trials: Sequence[tuple[TrialResult, StrategySwitchResult]]) -> str:
    """Return a title on what the strategy switch saved in the median repeat.

    If repeats differ, the title also states in how many the switch saved time.
    """
    first, _ = trials[0]
    repeats = [switch for trial, switch in trials if (trial.strategy, trial.workers) == (first.strategy, first.workers)]
    differences = describe_switch_outcomes(repeats)
    return f"{first.strategy}: {describe_strategy_switch(find_median_saving_switch(repeats), first.workers)}" + (
        f"; {differences}" if differences else ""
    )


def _draw_time_saved_bars(axes: Axes, bar_y: int, switch_result: StrategySwitchResult) -> None:
    limit = "" if switch_result.break_even_workers is None else f"  n* = {switch_result.break_even_workers:,.1f}"
    if switch_result.gain is None:
        axes.annotate(
            f"{switch_result.outcome}{limit}", (0, bar_y), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
        return
    ends_ms = {1: 0.0, -1: 0.0}  # by sign: where the bars to the right and to the left of zero end
    parts_s = {**vars(switch_result.gain), "stale_s": -(switch_result.stale_s or 0.0)}
    for name, (_, colour) in GAIN_PARTS.items():
        saved_ms = 1e3 * parts_s[name]
        sign = 1 if saved_ms >= 0 else -1
        axes.barh(bar_y, saved_ms, left=ends_ms[sign], color=colour, height=0.6)
        ends_ms[sign] += saved_ms
    sum_ms = ends_ms[1] + ends_ms[-1]
    fill = "none" if switch_result.has_lost_model_quality else FOREGROUND
    axes.plot(sum_ms, bar_y, "o", color=FOREGROUND, markersize=4, markerfacecolor=fill)
    note = f"{sum_ms:+.3g} ms{limit}{'  quality was lost' if switch_result.has_lost_model_quality else ''}"
    axes.annotate(note, (ends_ms[1], bar_y), (6, 0), textcoords="offset points", va="center", fontsize=8)


def _make_figure_table(trials_with_switch_results: Sequence[tuple[TrialResult, StrategySwitchResult]]) -> pd.DataFrame:
    rows = [
        {
            "trial": trial.id,
            "workers": trial.workers,
            **strategy_switch_table_row(switch),
            "break_even_workers": switch.break_even_workers,
        }
        for trial, switch in trials_with_switch_results
    ]
    return pd.DataFrame(rows).replace({None: np.nan})
