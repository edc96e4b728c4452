"""Figure `compute_utilisation`: share of the step time in which workers are not blocked on the network."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import (
    FAINT_GREY,
    FOREGROUND,
    add_run_title_and_footer,
    create_figure,
    strategy_colour,
    strategy_marker,
)
from analysis.report.wording import format_quantity
from analysis.results.comparable_groups import sort_by_step_time
from analysis.results.trial_group import TrialGroup

ROW_HEIGHT_IN = 0.29
CAPTION = (
    "Compute utilisation: 1 - (exchange + wait) / step time, over all steps on whole batches of all workers. The point "
    "is the mean over repeats. Communication that overlaps with computing does not count as blocked. Thick line: from "
    "the worker that is blocked most to the worker that is blocked least. Thin line: from the 5th to the 95th "
    "percentile of rounds; a round is all steps up to an exchange."
)


class UtilisationRow(NamedTuple):
    """Row of the figure: a group of trials, its mean utilisation, and the widest spread of its repeats."""

    group: TrialGroup
    share: float
    worker_min: float
    worker_max: float
    round_p5: float
    round_p95: float


def draw_compute_utilisation(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the compute utilisation of every group of trials as a point, with its spread over workers and rounds."""
    groups = sort_by_step_time(run.summary.trial_groups)
    rows = [_make_row(group, group.compute_utilisation) for group in groups if group.compute_utilisation is not None]
    if not rows:
        return None
    figure, (axes,) = create_figure(1, 1, 1.5 + ROW_HEIGHT_IN * len(rows))
    title = _figure_title(rows)
    add_run_title_and_footer(figure, run.summary, title)
    for y, row in enumerate(rows):
        colour = strategy_colour(run.summary, row.group.strategy)
        _draw_row(axes, y, row, colour, strategy_marker(run.summary, row.group.strategy))
    axes.set_yticks(range(len(rows)), [row.group.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.1)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("compute utilisation")
    return CaptionedFigure("compute_utilisation", title, CAPTION, _make_table(rows), figure)


def _make_row(group: TrialGroup, share: float) -> UtilisationRow:
    measured = [trial.compute_utilisation for trial in group.trials]
    lows = ([each.worker_min for each in measured], [each.round_p5 for each in measured])
    highs = ([each.worker_max for each in measured], [each.round_p95 for each in measured])
    worker_min, round_p5 = (min(value for value in values if value is not None) for values in lows)
    worker_max, round_p95 = (max(value for value in values if value is not None) for values in highs)
    return UtilisationRow(group, share, worker_min, worker_max, round_p5, round_p95)


def _figure_title(rows: Sequence[UtilisationRow]) -> str:
    """Return a title with the highest and the lowest utilisation on the most workers."""
    distributed = [row for row in rows if not row.group.is_baseline]
    if not distributed:
        return "Nothing is exchanged: one worker computes alone"
    most_workers = max(row.group.workers for row in distributed)
    largest = [row for row in distributed if row.group.workers == most_workers]
    low, high = (choose(largest, key=lambda row: row.share) for choose in (min, max))
    finding = f"Compute utilisation on {most_workers} workers: {_describe(high)}"
    return finding if high == low else f"{finding}, {_describe(low)}"


def _describe(row: UtilisationRow) -> str:
    """Return the utilisation of a group with its name, such as "93.6% with ring (uplink 5gbit)"."""
    condition = f" ({row.group.condition})" if row.group.condition else ""
    return f"{format_quantity(row.share, '%')} with {row.group.strategy}{condition}"


def _draw_row(axes: Axes, y: int, row: UtilisationRow, colour: str, marker: str) -> None:
    axes.hlines(y, row.round_p5, row.round_p95, color=FAINT_GREY, linewidth=1.6)
    axes.hlines(y, row.worker_min, row.worker_max, color=FOREGROUND, linewidth=3.2)
    axes.plot([row.share], [y], color=colour, marker=marker, markersize=6, linestyle="none", clip_on=False)
    right_end = max(row.share, row.worker_max, row.round_p95)
    text = format_quantity(row.share, "%")
    axes.annotate(text, (right_end, y), (8, 0), textcoords="offset points", va="center", fontsize=8)


def _make_table(rows: Sequence[UtilisationRow]) -> pd.DataFrame:
    columns = ["strategy", "condition", "workers", "compute_utilisation", *UtilisationRow._fields[2:]]
    values = [(row.group.strategy, row.group.condition, row.group.workers, *row[1:]) for row in rows]
    return pd.DataFrame(values, columns=columns)
