"""What does a run look like while it runs? Bars on a terminal, lines elsewhere, or nothing but the end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ensayo.course import Course
from ensayo.wording import duration, title
from services.plan import Plan
from services.scenario import Scenario

SHOWN = {"train_loss", "eval_metrics"}  # events after which there is something new to see


class Display(ABC):
    """A watcher of runs; it keeps the course and leaves it to its kind what to show of it."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self.course = Course((), clock)

    def run_started(self, scenario: Scenario, engine: str, reason: str, plans: Sequence[Plan], folder: Path) -> None:
        """A run begins; nothing of it has started yet."""
        self.course = Course(plans, self.clock)
        self.say(f"{scenario.name}: {len(plans)} trials on engine {engine} ({reason}) → {folder}")
        self.begin()

    def preparing(self, what: str) -> None:
        """Something is made that all trials need."""
        self.say(what)

    def trial_started(self, plan: Plan, k: int, n: int) -> None:
        """Trial k of n begins."""
        self.course.begin()
        self.show_trial(f"[{k}/{n}] {title(plan)}", plan)

    def event(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """The coordinator has logged something."""
        self.course.hear(event)
        if event["key"] in SHOWN:
            self.show_pace(plan, event)

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None:
        """A trial is over, one way or another."""
        self.course.end(seconds)
        self.show_end(
            f"[{len(self.course.spent_s)}/{len(self.course.plans)}] {title(plan)}: {status}, {duration(seconds)}"
        )

    def run_ended(self, folder: Path, verdict: str) -> None:
        """All is over, and has been judged."""
        self.finish()
        self.console.print(f"{verdict}: {folder}", highlight=False, markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """One line for whoever looks on."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin(self) -> None:
        """Before the first trial."""

    @abstractmethod
    def show_trial(self, line: str, plan: Plan) -> None:
        """A trial has begun."""

    @abstractmethod
    def show_pace(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """The course knows something new."""

    @abstractmethod
    def show_end(self, line: str) -> None:
        """A trial has ended."""

    def finish(self) -> None:
        """After the last trial, or when the run is broken off."""


class Silent(Display):
    """Only the verdict."""

    def say(self, line: str) -> None: ...
    def show_trial(self, line: str, plan: Plan) -> None: ...
    def show_pace(self, plan: Plan, event: Mapping[str, Any]) -> None: ...
    def show_end(self, line: str) -> None: ...


class Lines(Display):
    """Plain lines, for files and pipes."""

    def show_trial(self, line: str, plan: Plan) -> None:
        self.say(line)

    def show_pace(self, plan: Plan, event: Mapping[str, Any]) -> None:
        if event["key"] == "eval_metrics":
            left = duration(self.course.left_s())
            self.say(f"  step {self.course.pace.step}/{plan.steps}: {self.course.pace}; {left} left")

    def show_end(self, line: str) -> None:
        self.say(line)


class Bars(Display):
    """Two bars that move: the trial, and all trials."""

    def begin(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bars = Progress(*columns, console=self.console, transient=True)
        self.whole: TaskID = self.bars.add_task("trials", total=len(self.course.plans), note="")
        self.trial: TaskID = self.bars.add_task("", total=None, note="", visible=False)
        self.bars.start()

    def show_trial(self, line: str, plan: Plan) -> None:
        self.bars.reset(self.trial, description=title(plan), total=plan.steps, note="starting", visible=True)
        self._show_left()

    def show_pace(self, plan: Plan, event: Mapping[str, Any]) -> None:
        self.bars.update(self.trial, completed=self.course.pace.step, note=str(self.course.pace))
        self._show_left()

    def show_end(self, line: str) -> None:
        self.bars.update(self.trial, visible=False)
        self.bars.update(self.whole, completed=len(self.course.spent_s))
        self.say(line)

    def finish(self) -> None:
        self.bars.stop()

    def _show_left(self) -> None:
        left_s = self.course.left_s()
        self.bars.update(self.whole, note=f"{duration(left_s)} left" if left_s else "")


def display(*, quiet: bool, console: Console | None = None) -> Display:
    """The watcher that suits the terminal."""
    console = console or Console()
    kind = Silent if quiet else Bars if console.is_terminal else Lines
    return kind(console)
