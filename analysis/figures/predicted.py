"""Figure `predicted`: measured and predicted step time of every strategy.

The prediction comes from a formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import (
    BACKGROUND,
    FAINT_GREY,
    FOREGROUND,
    add_run_title_and_footer,
    create_figure,
    strategy_colour,
)
from analysis.report.wording import format_signed_percentage
from analysis.results.comparable_groups import sort_by_step_time
from analysis.results.trial_group import TrialGroup

ROW_HEIGHT_IN = 0.27
NEGLIGIBLE_DEVIATION = 0.001  # the title does not give the value of a smaller relative deviation


@dataclass(frozen=True)
class StepTimeComparison:
    """Predicted and measured step time of repeated trials.

    If the trials switch their strategy, the times are those of one phase of the training.
    """

    trial_group: TrialGroup
    name: str
    measured_step_s: float
    predicted_step_s: float

    @property
    def relative_deviation(self) -> float:
        """Measured / predicted step time - 1."""
        return self.measured_step_s / self.predicted_step_s - 1


def draw_predicted_step_times(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw predicted and measured step time, one row per strategy and number of workers.

    An open circle is the predicted step time, a filled circle the measured median. The number beside the circles is the
    relative deviation.
    """
    rows = [row for group in sort_by_step_time(run.summary.trial_groups) for row in _compare_step_prediction(group)]
    if not rows:
        return None
    figure, (axes,) = create_figure(1, 1, 1.5 + ROW_HEIGHT_IN * len(rows))
    title = _figure_title(rows)
    add_run_title_and_footer(figure, run.summary, title)
    for y, row in enumerate(rows):
        _draw_step_time_comparison(axes, y, row, strategy_colour(run.summary, row.trial_group.strategy))
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.12 * max(1000 * max(row.measured_step_s, row.predicted_step_s) for row in rows))
    axes.set_xlabel("virtual milliseconds per step")
    caption = (
        "Open circle: median step of the closed form, over all steps of all workers. Filled circle: measured median "
        "step, mean over the repeats; where speeds vary, the mean step. Each step between two exchanges counts as the "
        "mean of those steps. Number: relative deviation = measured / predicted - 1. A growing deviation is an effect "
        "that the model does not contain."
    )
    return CaptionedFigure("predicted", title, caption, _make_step_time_data(rows), figure)


def _compare_step_prediction(group: TrialGroup) -> list[StepTimeComparison]:
    """Return predicted and measured step times of repeated trials.

    If the trials switched the strategy, there is one comparison per training phase.

    The list is empty if the plan has no predicted step time.
    """
    switches = [trial.switch for trial in group.trials if trial.switch and trial.switch.has_switched]
    if not switches:
        if not group.measured_step_s or not group.predicted_step_s:
            return []
        return [StepTimeComparison(group, group.name, group.measured_step_s, group.predicted_step_s)]
    rows = []
    for phase_name in ("before", "after"):
        phases = [phase for switch in switches if (phase := getattr(switch, phase_name)) and phase.predicted_step_s]
        if phases:
            measured_s = float(np.mean([phase.step_s for phase in phases]))
            rows.append(StepTimeComparison(group, f"{group.name} {phase_name}", measured_s, phases[0].predicted_step_s))
    return rows


def _figure_title(comparisons: Sequence[StepTimeComparison]) -> str:
    """Return a title on the relative deviation between measured and predicted step times.

    The title states the median and the largest deviation.
    """
    worst = max(comparisons, key=lambda row: abs(row.relative_deviation))
    if abs(worst.relative_deviation) < NEGLIGIBLE_DEVIATION:
        return f"The closed form predicts every median step to within {NEGLIGIBLE_DEVIATION:.1%}"
    direction = "longer" if worst.relative_deviation > 0 else "shorter"
    typical = median(abs(row.relative_deviation) for row in comparisons)
    return (
        f"The closed form typically differs from the median step by {typical:.1%}; "
        f"at worst, a step of {worst.name} is {abs(worst.relative_deviation):.1%} {direction} than predicted"
    )


def _draw_step_time_comparison(axes: Axes, y: int, comparison: StepTimeComparison, colour: str) -> None:
    measured_ms, predicted_ms = 1000 * comparison.measured_step_s, 1000 * comparison.predicted_step_s
    axes.hlines(y, min(measured_ms, predicted_ms), max(measured_ms, predicted_ms), color=FAINT_GREY, linewidth=3)
    axes.plot(predicted_ms, y, "o", color=FOREGROUND, markerfacecolor=BACKGROUND, markersize=8, markeredgewidth=1.2)
    axes.plot(measured_ms, y, "o", color=colour, markersize=5)
    label = format_signed_percentage(comparison.relative_deviation)
    place = (max(measured_ms, predicted_ms), y)
    axes.annotate(label, place, (9, 0), textcoords="offset points", va="center", fontsize=8)


def _make_step_time_data(step_time_comparisons: Sequence[StepTimeComparison]) -> pd.DataFrame:
    """Return a table of the step times in the figure.

    It has a column `phase` only if a trial switched strategies.
    """
    values = [
        (
            *(row.trial_group.strategy, row.trial_group.condition, row.trial_group.workers),
            *(row.measured_step_s, row.predicted_step_s, row.relative_deviation),
        )
        for row in step_time_comparisons
    ]
    columns = ["strategy", "condition", "workers", "measured_step_s", "predicted_step_s", "relative_deviation"]
    data = pd.DataFrame(values, columns=columns)
    phase_names = [row.name.removeprefix(row.trial_group.name).strip() for row in step_time_comparisons]
    return data.assign(phase=phase_names) if any(phase_names) else data
