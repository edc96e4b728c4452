"""Figure `time_to_target`: virtual time that every strategy needs to reach the target quality."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.report.fastest import TwoFastestStrategies, compare_winner_with_rival
from analysis.report.wording import format_number
from analysis.results.trial_group import TrialGroup

ROW_HEIGHT_IN = 0.27


def draw_time_to_target(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the time to the target quality for each strategy and number of workers.

    Each strategy and number of workers has a bar, and each run has a dot.

    Bars are olympic means. A run that missed the target is an open circle at the end of the run.
    """
    target = run.summary.target
    groups = sorted(
        run.summary.trial_groups,
        key=lambda group: (not group.has_reached_target, group.time_to_target_s, _find_longest_time_s(group)),
    )
    if target is None or not groups:
        return None
    figure, (axes,) = style.create_figure(1, 1, 1.5 + ROW_HEIGHT_IN * len(groups))
    for y, group in enumerate(groups):
        _draw_time_to_target_bar(axes, y, group, style.strategy_colour(run.summary, group.strategy))
    axes.set_yticks(range(len(groups)), [group.name for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.12 * max(_find_longest_time_s(group) for group in groups) or 1)
    axes.set_xlabel(f"virtual seconds to {target}")
    title = _figure_title(compare_winner_with_rival(run.summary), target)
    style.add_run_title_and_footer(figure, run.summary, title)
    caption = (
        "Bars: olympic mean over the repeats (of three or more, the fastest and the slowest are dropped). Dots: single "
        "runs. Open circles: runs that ended without reaching the target, drawn where they ended."
    )
    return CaptionedFigure("time_to_target", title, caption, _figure_data(groups), figure)


def _figure_title(two_fastest_strategies: TwoFastestStrategies | None, target_text: str) -> str:
    if two_fastest_strategies is None or two_fastest_strategies.time_metric != "time_to_target":
        return f"No strategy reaches {target_text}"
    return two_fastest_strategies.description


def _find_longest_time_s(trial_group: TrialGroup) -> float:
    """Return the longest time to the target quality among repeated trials, in seconds.

    A trial that missed the target counts with its duration.
    """
    return max(trial.time_to_target_s or trial.seconds or 0.0 for trial in trial_group.trials)


def _draw_time_to_target_bar(axes: Axes, bar_y: int, group: TrialGroup, colour: str) -> None:
    mean_s = group.time_to_target_s
    if np.isfinite(mean_s):
        axes.barh(bar_y, mean_s, height=0.66, color=colour)
    note = f"{format_number(mean_s)} s" if np.isfinite(mean_s) else "missed"
    axes.annotate(
        note, (_find_longest_time_s(group), bar_y), (6, 0), textcoords="offset points", va="center", fontsize=8.5
    )
    for trial in group.trials:
        reached_s = trial.time_to_target_s
        fill = style.BACKGROUND if reached_s is None else style.FOREGROUND
        end_s = reached_s or trial.seconds or 0.0
        axes.plot(end_s, bar_y, "o", color=style.FOREGROUND, markerfacecolor=fill, markersize=3.5)


def _figure_data(trial_groups: list[TrialGroup]) -> pd.DataFrame:
    rows = [
        (trial.id, group.strategy, group.condition, group.workers, trial.repeat, trial.time_to_target_s, trial.seconds)
        for group in trial_groups
        for trial in group.trials
    ]
    columns = ["trial", "strategy", "condition", "workers", "repeat", "time_to_target_s", "seconds"]
    return pd.DataFrame(rows, columns=columns)
