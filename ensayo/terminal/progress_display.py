"""Displays of a run in progress: progress bars on a terminal, plain lines of text elsewhere, or no output."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ensayo.terminal.run_progress import RunProgress
from ensayo.terminal.terminal_text import format_duration, trial_title, undetected_corruption_lines
from ensayo.unknown_predictions import repeat_lines
from services.plan import Plan
from services.scenario.scenario import Scenario


class RunProgressDisplay(ABC):
    """Observer that tracks the progress of a run.

    Subclasses define how the progress is shown.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock = clock
        self.progress = RunProgress((), clock)

    def engine_preparation_started(self, description: str) -> None:
        """Show what the engine prepares before a run, for example the container image that it builds."""
        self.print_line(description)

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        """Show that a run starts, before its first trial starts."""
        self.progress = RunProgress(plans, self.clock)
        if not plans:
            self.print_line(f"{scenario.name}: no trials left to run; writing the report of {run_folder}")
            return
        trial_count = f"{len(plans)} trial{'s' * (len(plans) != 1)}"
        self.print_line(f"{scenario.name}: {trial_count}, engine {engine_name} ({why_this_engine}), into {run_folder}")
        for note in (*repeat_lines(plans), *undetected_corruption_lines(plans)):
            self.print_line(note)

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        """Show that a trial starts, with its number and the total number of trials."""
        self.progress.start_trial()
        self.show_trial_start(f"[{trial_number}/{trial_count}] {trial_title(plan)}")

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:  # noqa: ARG002 - `progress` has the plan
        """Show a log event of the running trial's coordinator."""
        self.progress.record_log_event(log_event)
        self.show_event_progress(str(log_event["key"]))

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None:  # noqa: ARG002 - shown already
        """Show that this host disturbed an attempt at the running trial, which is repeated after a rest."""
        self.progress.restart_trial()
        next_attempt = f"attempt {next_attempt} follows after {pause_s:g} s"
        self.show_trial_end(f"this host may have disturbed the trial: {disturbance}; {next_attempt}")

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        """Show that the running trial has ended, with its status and its duration in wall time.

        For the engine, a trial succeeded if its nodes ran to their end. The log shows whether its training diverged.
        """
        status = self._describe_success(plan) if trial_status == "success" else trial_status
        self.progress.finish_trial(wall_s)
        self.show_trial_end(f"{trial_title(plan)}: {status}, {format_duration(wall_s)}")

    def _describe_success(self, plan: Plan) -> str:
        """Return how the training of a trial ended whose nodes ran to their end."""
        if self.progress.trial_progress.has_diverged:
            return "diverged"
        step = self.progress.target_step
        if step is not None:
            return f"success, target reached at step {step}" + (f" of {plan.steps}" if plan.steps else "")
        return "success, target missed" if plan.target else "success"

    @abstractmethod
    def print_line(self, line: str) -> None:
        """Print a line that stays on the screen."""

    @abstractmethod
    def show_trial_start(self, line: str) -> None:
        """Show that a trial has started."""

    @abstractmethod
    def show_event_progress(self, log_event_name: str) -> None:
        """Show the progress of the run after an event was logged.

        `log_event_name` is the key of the event.
        """

    @abstractmethod
    def show_trial_end(self, line: str) -> None:
        """Show that a trial has ended."""

    @abstractmethod
    def close(self) -> None:
        """Close the display at the end of a run, also of an interrupted run."""


class SilentDisplay(RunProgressDisplay):
    """Progress display that prints nothing."""

    def print_line(self, line: str) -> None:
        """Print nothing."""

    show_trial_start = show_trial_end = print_line

    def show_event_progress(self, log_event_name: str) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing: a silent display holds no resources."""


class PlainLineDisplay(RunProgressDisplay):
    """Progress display that prints plain lines of text, for output to files and pipes."""

    def print_line(self, line: str) -> None:
        """Print a line without colours, markup or wrapping."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    show_trial_start = print_line

    def show_event_progress(self, log_event_name: str) -> None:
        """Print a line if the logged event is an evaluation; ignore other events."""
        if log_event_name != "eval_metrics":
            return
        progress = self.progress
        if not progress.has_known_length:
            self.print_line(f"  step {progress.trial_progress.step}: {progress.trial_progress}")
            return
        step = f"step {progress.finished_steps_of_trial}/{progress.current_plan.steps}"
        remaining_text = describe_remaining_time(progress.remaining_s())
        self.print_line(f"  {step}: {', '.join(filter(None, (str(progress.trial_progress), remaining_text)))}")

    def show_trial_end(self, line: str) -> None:
        """Print an indented line for the ended trial, below the line of its start."""
        self.print_line(f"  {line}")

    def close(self) -> None:
        """Do nothing, because a display that only prints lines holds no resources."""


class ProgressBarDisplay(PlainLineDisplay):
    """Progress display with two bars: one for the running trial and one for all trials.

    Above the bars, there is a line for each ended trial.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, clock)
        text, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
        self._progress_bars = Progress(text, BarColumn(20), MofNCompleteColumn(), note, console=console, transient=True)
        self._trial_bar = self._progress_bars.add_task("", note="", visible=False)
        self._run_bar = self._progress_bars.add_task("all trials", note="", visible=False)

    def show_trial_start(self, line: str) -> None:
        """Show the progress bars of the running trial and of all trials.

        The bar of the running trial is reset.
        """
        self._progress_bars.start()
        steps = self.progress.current_plan.steps or None  # None: a bar without an end
        self._progress_bars.reset(self._trial_bar, description=line, total=steps, note="starting", visible=True)
        self._update_run_bar()

    def show_event_progress(self, log_event_name: str) -> None:
        """Update both progress bars (trial and run) and the estimated remaining time."""
        note = str(self.progress.trial_progress) or log_event_name.replace("_", " ")
        self._progress_bars.update(self._trial_bar, completed=self.progress.finished_steps_of_trial, note=note)
        self._update_run_bar()

    def show_trial_end(self, line: str) -> None:
        """Print a line for the ended trial and hide the trial's progress bar."""
        self.print_line(line)
        self._progress_bars.update(self._trial_bar, visible=False)
        self._update_run_bar()

    def close(self) -> None:
        """Remove the bars from the terminal."""
        self._progress_bars.stop()

    def _update_run_bar(self) -> None:
        progress, note = self.progress, describe_remaining_time(self.progress.remaining_s())
        finished, total = len(progress.finished_trials_s), len(progress.plans)
        self._progress_bars.update(self._run_bar, completed=finished, total=total, note=note, visible=True)


def describe_remaining_time(remaining_s: float | None) -> str:
    """Return the estimated remaining time as text, such as `12 s left`; empty without an estimate."""
    return "" if remaining_s is None else f"{format_duration(remaining_s)} left"


def create_run_display(*, quiet: bool) -> RunProgressDisplay:
    """Return the progress display that suits stdout: bars on a terminal, plain lines elsewhere.

    A quiet display shows nothing.
    """
    console = Console()
    if quiet:
        return SilentDisplay(console)
    return ProgressBarDisplay(console) if console.is_terminal else PlainLineDisplay(console)
