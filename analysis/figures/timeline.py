"""Figure `timeline`: step time against virtual time.

Declared changes of links and workers are shaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.metrics.event_outcomes import PlannedVsActualTimes
from analysis.report.wording import TIMES_SIGN, format_number
from analysis.results.trial_result import TrialResult

PANEL_HEIGHT_IN = 1.75
MAX_PANELS = 6
EVENT_COLOUR, EVENT_ALPHA = "#e3a04f", 0.25
MAX_LABELLED_EVENTS = 6  # of a panel; labels of more events would cover each other
MIN_SMOOTHED_STEPS = 200  # trials with fewer steps are drawn without a running median
WINDOWS_PER_TRIAL = 100  # steps of a trial / steps in one window of the running median


@dataclass(frozen=True)
class TrialStepTimeline:
    """Step times of one trial, and the events that took place during the trial."""

    result: TrialResult
    steps: pd.DataFrame  # step, attempt, start_s, end_s, step_s: medians over the workers, by start

    @property
    def display_name(self) -> str:
        """Strategy, number of workers and swept values of a trial, for example `ring x4 · uplink 100mbit`."""
        trial = self.result
        return f"{trial.strategy} {TIMES_SIGN}{trial.workers}" + (f" · {trial.condition}" if trial.condition else "")

    @property
    def last_step_end_s(self) -> float:
        """Virtual time at which the last step of the trial ended."""
        return float(self.steps["end_s"].max())

    def find_event_begin_and_end_s(self, event_times: PlannedVsActualTimes) -> tuple[float, float] | None:
        """Return begin and end of an event, in virtual seconds.

        Return None if the event was never applied.

        An event that was not undone ends with the last step of the trial.
        """
        if event_times.applied_s is None or event_times.applied_s > self.last_step_end_s:
            return None
        return event_times.applied_s, self.last_step_end_s if event_times.ended_s is None else event_times.ended_s

    @property
    def event_step_slowdown(self) -> float:
        """Median time of the steps during events, divided by the median time of all other steps.

        The ratio is NaN if there are no steps of one kind. Events that change no times are left out.
        """
        step_s, is_during_event = self.steps["step_s"], self.is_during_event
        return float(step_s[is_during_event].median() / step_s[~is_during_event].median())

    @property
    def is_during_event(self) -> "pd.Series[bool]":
        """Whether each step overlaps with an event that can change times."""
        events = [event for event in self.result.events if event.changes_times]
        spans_s = [span_s for event in events if (span_s := self.find_event_begin_and_end_s(event))]
        starts_s, ends_s = self.steps["start_s"], self.steps["end_s"]
        is_during_event = pd.Series(data=False, index=self.steps.index)
        for begin_s, end_s in spans_s:
            is_during_event |= (starts_s < end_s) & (ends_s > begin_s)
        return is_during_event


def draw_step_times_with_events(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw step time against virtual time, one panel per trial.

    Events such as worker slowdowns are shaded.
    """
    trials = _find_trials_with_events(run)
    if not trials:
        return None
    figure, panels = style.create_figure(len(trials), 1, 1.1 + PANEL_HEIGHT_IN * len(trials), sharex="all")
    title = _figure_title(trials)
    style.add_run_title_and_footer(figure, run.summary, title)
    for axes, trial in zip(panels, trials, strict=True):
        _draw_step_time_panel(axes, trial, style.strategy_colour(run.summary, trial.result.strategy))
    style.start_axes_at_zero(panels, x=True, y=True)
    panels[-1].set_xlabel("virtual seconds since training began")
    caption = (
        "Median step over the workers, in the first repeat; where there are many steps, their running median. A step "
        "that training repeats is drawn for each attempt. Shaded: from the time when an event was applied until it was "
        "undone, or else to the end."
    )
    return CaptionedFigure("timeline", title, caption, _figure_data(trials), figure)


def _find_trials_with_events(run: AnalysedRun) -> list[TrialStepTimeline]:
    """Return the step times of trials that had events.

    These are the first repeats of every strategy and number of workers.

    If there are more than `MAX_PANELS` such trials, those with the most workers are returned.
    """
    pairs = zip(run.table.trials, run.summary.trials, strict=True)
    candidates = [
        TrialStepTimeline(result, _median_step_times_over_workers(table.steps))
        for table, result in pairs
        if result.events and result.repeat == 0 and not table.steps.empty
    ]
    largest = sorted(candidates, key=lambda trial: trial.result.workers, reverse=True)[:MAX_PANELS]
    return [trial for trial in candidates if any(trial is kept for kept in largest)]


def _median_step_times_over_workers(step_table: pd.DataFrame) -> pd.DataFrame:
    """Return the begin, end and duration of every training step, each as the median over the workers.

    A step that training repeats after a failure has a row for each attempt. Rows are in the order of their begin.
    """
    by_step = step_table.assign(end_s=step_table["start_s"] + step_table["step_s"]).groupby(["step", "attempt"])
    return by_step[["start_s", "end_s", "step_s"]].median().reset_index().sort_values("start_s", ignore_index=True)


def _figure_title(trials: Sequence[TrialStepTimeline]) -> str:
    """Return a title that states how much longer steps take during events.

    The title covers the most and the least affected trial.
    """
    affected = [trial for trial in trials if isfinite(trial.event_step_slowdown)]
    if not affected:
        return _title_without_slowdown(trials)
    most = max(affected, key=lambda trial: trial.event_step_slowdown)
    least = min(affected, key=lambda trial: trial.event_step_slowdown)
    ratio = format_number(most.event_step_slowdown)
    finding = f"While events last, a step of {most.display_name} takes {ratio} times as long"
    if most is least:
        return finding
    return f"{finding}, a step of {least.display_name} {format_number(least.event_step_slowdown)} times"


def _title_without_slowdown(trials: Sequence[TrialStepTimeline]) -> str:
    """Return a title for trials that have no step during an event, or no step outside events."""
    if all(trial.is_during_event.all() for trial in trials):
        return "All steps overlap with events"
    if any(trial.is_during_event.any() for trial in trials):
        return "No trial has both steps during events and steps outside events"
    if not any(event.changes_times for trial in trials for event in trial.result.events):
        return "The events change no times of steps"
    return "No step took place during an event"


def _draw_step_time_panel(axes: Axes, trial_step_times: TrialStepTimeline, colour: str) -> None:
    steps, count = trial_step_times.steps, len(trial_step_times.steps)
    window = max(1, count // WINDOWS_PER_TRIAL) if count >= MIN_SMOOTHED_STEPS else 1
    milliseconds = 1000 * steps["step_s"].rolling(window, center=True, min_periods=1).median()
    axes.plot(steps["end_s"], milliseconds, color=colour, linewidth=1.3)
    events = [
        (event, span_s)
        for event in trial_step_times.result.events
        if (span_s := trial_step_times.find_event_begin_and_end_s(event))
    ]
    for _, span_s in events:
        axes.axvspan(*span_s, color=EVENT_COLOUR, alpha=EVENT_ALPHA, linewidth=0)
    if len(events) <= MAX_LABELLED_EVENTS:
        for event, (begin_s, _) in events:
            _label_events(axes, _event_label(event), begin_s)
    else:
        kinds = dict.fromkeys(event.kind for event, _ in events)
        _label_events(axes, f"{len(events)} events: {', '.join(kinds)}", min(span_s[0] for _, span_s in events))
    axes.set_title(trial_step_times.display_name)
    axes.set_ylabel("ms per step")


def _event_label(event_times: PlannedVsActualTimes) -> str:
    nodes = event_times.nodes[0] if len(event_times.nodes) == 1 else f"{len(event_times.nodes)} nodes"
    return f"{event_times.kind} {nodes}"


def _label_events(axes: Axes, label: str, begin_s: float) -> None:
    axes.annotate(
        label, (begin_s, 1.0), (3, -3), xycoords=("data", "axes fraction"), textcoords="offset points", va="top",
        fontsize=7.5, color=style.FOREGROUND, annotation_clip=True,
    )  # fmt: skip


def _figure_data(trials: Sequence[TrialStepTimeline]) -> pd.DataFrame:
    return pd.concat([_add_event_ids_to_steps(trial) for trial in trials], ignore_index=True)


def _add_event_ids_to_steps(trial_step_times: TrialStepTimeline) -> pd.DataFrame:
    """Return the steps of one trial, with the events that were active during each step.

    The table has a column for the trial's name and one for the events.
    """
    step_spans_s = zip(trial_step_times.steps["start_s"], trial_step_times.steps["end_s"], strict=True)
    events = [_format_step_event_ids(trial_step_times, start_s, end_s) for start_s, end_s in step_spans_s]
    result = trial_step_times.result
    return trial_step_times.steps.assign(
        trial=result.id, strategy=result.strategy, workers=result.workers, events=events
    )


def _format_step_event_ids(trial: TrialStepTimeline, step_start_s: float, step_end_s: float) -> str:
    """Return as text the numbers of the events that were active during a step.

    The numbers are separated by blanks, as `0 2`.
    """
    spans_s = ((event.number, trial.find_event_begin_and_end_s(event)) for event in trial.result.events)
    return " ".join(
        str(number) for number, span_s in spans_s if span_s and span_s[0] < step_end_s and span_s[1] > step_start_s
    )
