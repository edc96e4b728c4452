"""Figure `strategy_map`: the fastest strategy for each combination of the values of two swept keys."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import (
    BACKGROUND,
    FOREGROUND,
    add_run_title_and_footer,
    create_figure,
    strategy_colour,
)
from analysis.report.wording import TIMES_SIGN, format_number
from analysis.results.strategy_map import StrategyMap, StrategyMapCell, make_strategy_map
from analysis.results.summary import RunSummary

ROW_HEIGHT_IN = 0.62
HATCH = "////"
NO_RESULT = "no result"


def draw_strategy_map(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the fastest strategy over two swept keys, one cell per combination of their values.

    A cell has the colour of the strategy with the least median time. It is hatched unless paired tests separate the
    fastest strategy from every other. A cell without a result is empty.
    """
    strategy_map = make_strategy_map(run.summary)
    if strategy_map is None:
        return None
    figure, (axes,) = create_figure(1, 1, 1.9 + ROW_HEIGHT_IN * len(strategy_map.y_values))
    winners = {cell.winner.strategy for cell in strategy_map.cells if cell.winner}
    legend = {name: strategy_colour(run.summary, name) for name in run.summary.strategies if name in winners}
    add_run_title_and_footer(figure, run.summary, strategy_map.finding, legend)
    for cell in strategy_map.cells:
        _draw_cell(axes, strategy_map, cell, run.summary)
    _label_axes(axes, strategy_map)
    return CaptionedFigure(
        "strategy_map", strategy_map.finding, _make_caption(strategy_map), make_map_table(strategy_map), figure
    )


def make_map_table(strategy_map: StrategyMap) -> pd.DataFrame:
    """Return one row per cell: winner, runner-up, their median times, their ratio with interval, and the answer."""
    rows = [
        {
            strategy_map.x_name: cell.x,
            strategy_map.y_name: cell.y,
            "winner": cell.winner.strategy if cell.winner else "",
            "winner_s": cell.winner_time_s,
            "runner_up": cell.runner_up.strategy if cell.runner_up else "",
            "runner_up_s": cell.runner_up_time_s,
            "ratio": cell.ratio,
            "ci_low": _interval_end(cell, 0),
            "ci_high": _interval_end(cell, 1),
            "p_adjusted": cell.time_gap.p_adjusted if cell.time_gap else None,
            "winner_is_faster": str(cell.answer) if cell.winner else "",
            "reason": cell.reason,
        }
        for cell in strategy_map.cells
    ]
    return pd.DataFrame(rows).replace({None: np.nan})


def _interval_end(cell: StrategyMapCell, end: int) -> float | None:
    """Return one end of the interval of the ratio; None where the test does not compare in the order of the medians."""
    gap = cell.time_gap
    if gap is None or gap.comparison.interval is None or cell.winner is None or gap.faster.name != cell.winner.name:
        return None
    return gap.comparison.interval[end]


def _draw_cell(axes: Axes, strategy_map: StrategyMap, cell: StrategyMapCell, summary: RunSummary) -> None:
    x, y = strategy_map.x_values.index(cell.x), strategy_map.y_values.index(cell.y)
    colour = strategy_colour(summary, cell.winner.strategy) if cell.winner else BACKGROUND
    hatch = HATCH if cell.winner and not cell.is_separated else None
    axes.add_patch(
        Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=BACKGROUND, hatch=hatch, linewidth=1.5)
    )
    axes.text(
        x, y, _cell_text(cell), ha="center", va="center", fontsize=7.5, color=FOREGROUND,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": BACKGROUND, "edgecolor": "none"},
    )  # fmt: skip


def _cell_text(cell: StrategyMapCell) -> str:
    if cell.winner is None:
        return NO_RESULT
    ratio = f" {format_number(cell.ratio)}{TIMES_SIGN}" if cell.ratio else ""
    return f"{cell.winner.strategy}{ratio}"


def _label_axes(axes: Axes, strategy_map: StrategyMap) -> None:
    axes.grid(visible=False)
    axes.set_xlim(-0.5, len(strategy_map.x_values) - 0.5)
    axes.set_ylim(-0.5, len(strategy_map.y_values) - 0.5)
    axes.set_xticks(range(len(strategy_map.x_values)), [str(value) for value in strategy_map.x_values])
    axes.set_yticks(range(len(strategy_map.y_values)), [str(value) for value in strategy_map.y_values])
    axes.set_xlabel(strategy_map.x_name)
    axes.set_ylabel(strategy_map.y_name)


def _make_caption(strategy_map: StrategyMap) -> str:
    """Return the rules of the map, and why cells have no result or lack a strategy."""
    time = f"time to {strategy_map.target}" if strategy_map.time_metric == "time_to_target" else "time per sample"
    rules = (
        f"Colour and name: the strategy with the least median {time} over the repeats. Number: median {time} of the "
        "second fastest strategy, divided by that of the fastest. Hatched: paired tests over shared seeds do not "
        "separate the fastest strategy from every other (largest p ≥ 0.05, adjusted for the number of cells by Holm), "
        "or another strategy shares fewer than two seeds with it; such a cell has no proven fastest strategy."
    )
    reasons = dict.fromkeys(cell.reason for cell in strategy_map.cells if cell.reason)
    cells = {
        reason: ", ".join(
            f"{strategy_map.x_name} {cell.x} with {strategy_map.y_name} {cell.y}"
            for cell in strategy_map.cells
            if cell.reason == reason
        )
        for reason in reasons
    }
    return " ".join((rules, *(f"At {places}: {reason}." for reason, places in cells.items())))
