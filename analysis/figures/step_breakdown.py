"""Figure `step_breakdown`: duration of a training step, split into phases.

The phases are compute, exchange, waiting and others.
"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import FOREGROUND, STEP_PHASE_COLOURS, add_run_title_and_footer, create_figure
from analysis.report.wording import WAITS_FOR_EXCHANGE, format_number
from analysis.results.comparable_groups import sort_by_step_time
from analysis.results.trial_group import TrialGroup

ROW_HEIGHT_IN = 0.29
HIDDEN_PART = "compute with hidden communication"
HIDDEN_COLOUR = "#8f7d6b"
CHECKPOINT_PART = "checkpoint"
CHECKPOINT_COLOUR = "#a58fb8"
BAR_COLOURS = {  # the phases in their order, with the second part of compute after the first one, and checkpoints
    part: colour
    for phase, phase_colour in STEP_PHASE_COLOURS.items()
    for part, colour in ((phase, phase_colour), *([(HIDDEN_PART, HIDDEN_COLOUR)] if phase == "compute" else []))
} | {CHECKPOINT_PART: CHECKPOINT_COLOUR}
WAITING_DEFINITION = (  # also in README.md and in the glossary of the report
    "time after a worker is ready to exchange gradients and before the slowest worker is ready; not counted as "
    "exchange. In asynchronous training: the time for which a server delays its reply until other workers have pushed, "
    "or, without servers, until a worker knows its group."
)


def draw_step_breakdown(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the mean time of each phase of a training step as a stacked bar.

    There is one bar per strategy and number of workers.

    A vertical mark shows the step time predicted by the closed form.
    """
    groups = sort_by_step_time([group for group in run.summary.trial_groups if group.mean_s_by_step_phase])
    if not groups:
        return None
    figure, (axes,) = create_figure(1, 1, 1.75 + ROW_HEIGHT_IN * len(groups))
    title = _figure_title(groups)
    add_run_title_and_footer(figure, run.summary, title, legend_colours=_legend_colours(groups))
    for y, group in enumerate(groups):
        _draw_step_phases_bar(axes, y, group)
    axes.set_yticks(range(len(groups)), [group.name for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.13 * max(_bar_end_ms(group) for group in groups) or 1)
    axes.set_xlabel("virtual milliseconds per step")
    caption = (
        "Means over workers, repeats and steps on whole batches; the shorter last batch of an epoch is left out. "
        f"Exchange: communication that does not overlap with computing. Wait: {WAITING_DEFINITION} Vertical mark: mean "
        "of the closed form over the same steps. Where all rounds between two exchanges have a shorter batch, there is "
        "no mark and the bar is of all steps. At the end of each bar: share of the exchange."
    )
    if any(group.mean_hidden_communication_s for group in groups):
        caption += f" {HIDDEN_PART.capitalize()}: a collective is in flight and the worker does not wait for it."
    if any(group.mean_checkpoint_s_per_step for group in groups):
        caption += " Checkpoint: seconds in which workers write checkpoints, divided by the number of all their steps."
    return CaptionedFigure("step_breakdown", title, caption, _make_step_breakdown_table(groups), figure)


def _figure_title(groups: Sequence[TrialGroup]) -> str:
    """Return a title on the exchange time per step on the most workers.

    The title names the strategies with the shortest and with the longest exchange time, under the first condition.
    """
    largest = [group for group in groups if not group.is_baseline and group.workers == max(g.workers for g in groups)]
    if not largest:
        return "Nothing is exchanged: one worker computes alone"
    comparable = [group for group in largest if group.condition == largest[0].condition]
    low, high = min(comparable, key=_compute_exchange_share), max(comparable, key=_compute_exchange_share)
    place = f"On {low.workers} workers" + (f" ({low.condition})" if low.condition else "")
    if low == high:
        share = _compute_exchange_share(low)
        return f"{place} {low.strategy} spends {share:.0%} of a step on the exchange"
    hides_communication = any(group.mean_hidden_communication_s for group in (low, high))
    verb = WAITS_FOR_EXCHANGE if hides_communication else "exchanges for"
    return (
        f"{place} {low.strategy} {verb} a mean of {format_number(_exchange_time_ms(low))} ms "
        f"per step, {high.strategy} for {format_number(_exchange_time_ms(high))} ms"
    )


def _exchange_time_ms(trial_group: TrialGroup) -> float:
    return 1000 * trial_group.mean_s_by_step_phase["exchange"]


def _compute_exchange_share(trial_group: TrialGroup) -> float:
    return trial_group.mean_s_by_step_phase["exchange"] / max(sum(trial_group.mean_s_by_step_phase.values()), 1e-12)


def _bar_end_ms(trial_group: TrialGroup) -> float:
    """Return the position of a bar's right end, in ms.

    This is the measured or the predicted mean step time, whichever is longer.
    """
    return 1000 * max(sum(_bar_parts_s(trial_group).values()), trial_group.predicted_mean_step_s or 0.0)


def _draw_step_phases_bar(axes: Axes, y: int, trial_group: TrialGroup) -> None:
    left_ms, seconds_by_part = 0.0, _bar_parts_s(trial_group)
    for part, colour in BAR_COLOURS.items():
        width_ms = 1000 * seconds_by_part[part]
        axes.barh(y, width_ms, left=left_ms, height=0.68, color=colour)
        left_ms += width_ms
    if trial_group.predicted_mean_step_s:
        axes.vlines(1000 * trial_group.predicted_mean_step_s, y - 0.42, y + 0.42, color=FOREGROUND, linewidth=1.8)
    share = f"{_compute_exchange_share(trial_group):.0%}"
    axes.annotate(share, (_bar_end_ms(trial_group), y), (6, 0), textcoords="offset points", va="center", fontsize=8)


def _bar_parts_s(trial_group: TrialGroup) -> dict[str, float]:
    """Return the seconds of each part of a bar: the step phases, with compute in two parts, and checkpoints."""
    phases = trial_group.mean_s_by_step_phase
    hidden_s = min(trial_group.mean_hidden_communication_s or 0.0, phases["compute"])
    checkpoint_s = trial_group.mean_checkpoint_s_per_step or 0.0
    return phases | {"compute": phases["compute"] - hidden_s, HIDDEN_PART: hidden_s, CHECKPOINT_PART: checkpoint_s}


def _legend_colours(trial_groups: Sequence[TrialGroup]) -> dict[str, str]:
    """Return the colours of the parts that the bars of these groups may have."""
    has_part = {
        HIDDEN_PART: any(group.mean_hidden_communication_s for group in trial_groups),
        CHECKPOINT_PART: any(group.mean_checkpoint_s_per_step for group in trial_groups),
    }
    return {part: colour for part, colour in BAR_COLOURS.items() if has_part.get(part, True)}


def _make_step_breakdown_table(trial_groups: Sequence[TrialGroup]) -> pd.DataFrame:
    rows = [
        {
            "strategy": group.strategy,
            "condition": group.condition,
            "workers": group.workers,
            **{f"{phase}_s": seconds for phase, seconds in group.mean_s_by_step_phase.items()},
            "hidden_s": group.mean_hidden_communication_s,
            "predicted_step_s": group.predicted_mean_step_s,
            "checkpoint_s": group.mean_checkpoint_s_per_step,
        }
        for group in trial_groups
    ]
    return pd.DataFrame(rows)
