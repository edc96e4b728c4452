"""What did the events of the timeline do to the steps?"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import INK, canvas, colour, frame, from_zero
from analysis.metrics.happened import EventOutcome
from analysis.report.wording import format_number
from analysis.results.result import TIMES_SIGN, TrialResult

PANEL_IN = 1.75
MOST_PANELS = 6
SHADE, SHADE_ALPHA = "#e3a04f", 0.25
FEWEST_STEPS = 200  # from so many on, a running median keeps single steps from hiding the course
WINDOW_SHARE = 100  # of the steps, in one window


@dataclass(frozen=True)
class Course:
    """A trial's steps over time, and what happened meanwhile."""

    result: TrialResult
    steps: pd.DataFrame  # step, start_s, end_s, step_s: median over the workers

    @property
    def name(self) -> str:
        """`ring x4`, with the condition where there is one."""
        result = self.result
        return f"{result.strategy} {TIMES_SIGN}{result.workers}" + (
            f" · {result.condition}" if result.condition else ""
        )

    @property
    def end_s(self) -> float:
        """When its last step ended."""
        return float(self.steps["end_s"].max())

    def span(self, event: EventOutcome) -> tuple[float, float] | None:
        """From when to when an event was in force; None when it never was."""
        if event.applied_s is None or event.applied_s > self.end_s:
            return None
        return event.applied_s, self.end_s if event.ended_s is None else event.ended_s

    @property
    def effect(self) -> float:
        """Median step during events / median step otherwise; NaN when there is nothing to compare."""
        spans = [span for event in self.result.events if (span := self.span(event))]
        starts, ends = self.steps["start_s"], self.steps["end_s"]
        during = pd.Series(data=False, index=self.steps.index)
        for begin, end in spans:
            during |= (starts < end) & (ends > begin)
        return float(self.steps["step_s"][during].median() / self.steps["step_s"][~during].median())


def timeline(run: Run) -> Drawing | None:
    """Step time against virtual time, a panel per strategy, every event shaded from its begin to its end."""
    found = _courses(run)
    if not found:
        return None
    figure, panels = canvas(len(found), 1, 1.1 + PANEL_IN * len(found), sharex="all")
    title = _title(found)
    frame(figure, run.summary, title)
    for axes, course in zip(panels, found, strict=True):
        _panel(axes, course, colour(run.summary, course.result.strategy))
    from_zero(panels, x=True, y=True)
    panels[-1].set_xlabel("virtual seconds since training began")
    caption = (
        "Median step over the workers, of the first repeat; where there are many steps, a running median of them. "
        "Shaded: from when an event was applied until it was undone, or to the end."
    )
    return Drawing("timeline", title, caption, _table(found), figure)


def _courses(run: Run) -> list[Course]:
    """The first repeat of every strategy and number of workers that had events; of many, the largest."""
    pairs = zip(run.table.trials, run.summary.trials, strict=True)
    wanted = [
        Course(result, _steps(table.steps))
        for table, result in pairs
        if result.events and result.repeat == 0 and not table.steps.empty
    ]
    largest = sorted(wanted, key=lambda course: course.result.workers, reverse=True)[:MOST_PANELS]
    return [course for course in wanted if any(course is one for one in largest)]


def _steps(steps: pd.DataFrame) -> pd.DataFrame:
    by_step = steps.assign(end_s=steps["start_s"] + steps["step_s"]).groupby("step")
    return by_step[["start_s", "end_s", "step_s"]].median().reset_index()


def _title(found: Sequence[Course]) -> str:
    effects = [course for course in found if isfinite(course.effect)]
    if not effects:
        return "No step fell into an event"
    most, least = max(effects, key=lambda course: course.effect), min(effects, key=lambda course: course.effect)
    text = f"While events last, a step of {most.name} takes {format_number(most.effect)} times as long"
    return text if most is least else f"{text}, of {least.name} {format_number(least.effect)} times"


def _panel(axes: Axes, course: Course, tint: str) -> None:
    steps, count = course.steps, len(course.steps)
    window = max(1, count // WINDOW_SHARE) if count >= FEWEST_STEPS else 1
    milliseconds = 1000 * steps["step_s"].rolling(window, center=True, min_periods=1).median()
    axes.plot(steps["end_s"], milliseconds, color=tint, linewidth=1.3)
    for event in course.result.events:
        if span := course.span(event):
            _shade(axes, event, span)
    axes.set_title(course.name)
    axes.set_ylabel("ms per step")


def _shade(axes: Axes, event: EventOutcome, span: tuple[float, float]) -> None:
    axes.axvspan(*span, color=SHADE, alpha=SHADE_ALPHA, linewidth=0)
    few = event.nodes[0] if len(event.nodes) == 1 else f"{len(event.nodes)} nodes"
    place = (span[0], 1.0)
    label = f"{event.kind} {few}"
    axes.annotate(
        label, place, (3, -3), xycoords=("data", "axes fraction"), textcoords="offset points", va="top", fontsize=7.5,
        color=INK, annotation_clip=True,
    )  # fmt: skip


def _table(found: Sequence[Course]) -> pd.DataFrame:
    return pd.concat([_rows(course) for course in found], ignore_index=True)


def _rows(course: Course) -> pd.DataFrame:
    ends = zip(course.steps["start_s"], course.steps["end_s"], strict=True)
    events = [_in_force(course, start_s, end_s) for start_s, end_s in ends]
    result = course.result
    return course.steps.assign(trial=result.id, strategy=result.strategy, workers=result.workers, events=events)


def _in_force(course: Course, start_s: float, end_s: float) -> str:
    """The numbers of the events during a step, as `0 2`."""
    spans = ((event.number, course.span(event)) for event in course.result.events)
    return " ".join(str(number) for number, span in spans if span and span[0] < end_s and span[1] > start_s)
