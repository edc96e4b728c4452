"""What does a run look like while it runs? Bars on a terminal, lines elsewhere, or nothing at all."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ensayo.run_progress import Course
from ensayo.terminal_text import duration, title
from services.plan import Plan
from services.scenario.scenario import Scenario


class Display(ABC):
    """An observer of runs that keeps their course; its kinds decide what to show of it."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self.course = Course((), clock)

    def preparation_started(self, what: str) -> None:
        """Something is being built."""
        self.say(what)

    def run_started(self, scenario: Scenario, engine: str, reason: str, plans: tuple[Plan, ...], folder: Path) -> None:
        """The trials are decided; nothing of them has started yet."""
        self.course = Course(plans, self.clock)
        self.say(f"{scenario.name}: {len(plans)} trials, engine {engine} ({reason}), into {folder}")

    def trial_started(self, plan: Plan, number: int, count: int) -> None:
        """Trial `number` of `count` begins."""
        self.course.begin()
        self.show_start(f"[{number}/{count}] {title(plan)}")

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:  # noqa: ARG002 - the course knows which plan
        """The coordinator has logged something."""
        self.course.hear(event)
        self.show_pace(str(event["key"]))

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None:
        """It is over."""
        self.course.end(seconds)
        self.show_end(f"{title(plan)}: {status}, {duration(seconds)}")

    @abstractmethod
    def say(self, line: str) -> None:
        """One line that stays."""

    @abstractmethod
    def show_start(self, line: str) -> None:
        """A trial has begun."""

    @abstractmethod
    def show_pace(self, key: str) -> None:
        """The course has heard of `key`."""

    @abstractmethod
    def show_end(self, line: str) -> None:
        """A trial has ended."""

    @abstractmethod
    def finish(self) -> None:
        """Nothing follows, whether all has ended or was broken off."""


class Silent(Display):
    """Nothing."""

    def say(self, line: str) -> None:
        """Not a word."""

    show_start = show_end = say

    def show_pace(self, key: str) -> None:
        """Not a word."""

    def finish(self) -> None:
        """There is nothing to finish."""


class Lines(Display):
    """Plain lines, for files and pipes."""

    def say(self, line: str) -> None:
        """The line as it is: nothing coloured, nothing wrapped."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    show_start = say

    def show_pace(self, key: str) -> None:
        """A line per evaluation."""
        if key == "eval_metrics":
            course = self.course
            self.say(f"  step {course.step}/{course.plan.steps}: {course.pace}, {duration(course.left_s())} left")

    def show_end(self, line: str) -> None:
        """Indented, as it belongs to the trial above."""
        self.say(f"  {line}")

    def finish(self) -> None:
        """There is nothing to finish."""


class Bars(Lines):
    """Two bars that move, the running trial's and that of all trials, below the lines of the ended ones."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, clock)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bars = Progress(*columns, console=console, transient=True)
        self._trial = self._bars.add_task("", note="", visible=False)
        self._all = self._bars.add_task("all trials", note="", visible=False)

    def show_start(self, line: str) -> None:
        """The bars begin with the first trial."""
        self._bars.start()
        self._bars.reset(self._trial, description=line, total=self.course.plan.steps, note="starting", visible=True)
        self._show_all()

    def show_pace(self, key: str) -> None:
        """The trial's bar moves, and what is left changes."""
        note = str(self.course.pace) or key.replace("_", " ")
        self._bars.update(self._trial, completed=self.course.step, note=note)
        self._show_all()

    def show_end(self, line: str) -> None:
        """A line for the trial; its bar makes room for the next."""
        self.say(line)
        self._bars.update(self._trial, visible=False)
        self._show_all()

    def finish(self) -> None:
        """Give the terminal back."""
        self._bars.stop()

    def _show_all(self) -> None:
        course, left_s = self.course, self.course.left_s()
        note = f"{duration(left_s)} left" if left_s else ""
        self._bars.update(self._all, completed=len(course.spent_s), total=len(course.plans), note=note, visible=True)


def display(*, quiet: bool) -> Display:
    """What suits the terminal."""
    console = Console()
    if quiet:
        return Silent(console)
    return Bars(console) if console.is_terminal else Lines(console)
