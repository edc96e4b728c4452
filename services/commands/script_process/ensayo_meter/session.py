"""The metering of this process: one session, whose steps go to the node agent or to the file of a dry run."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .agent_client import AgentClient
from .dry_run import NO_GROUP, CpuClock, DryRun
from .pacer import Pacer
from .parameter_digest import TrainedParameters
from .protocol import DRY_RUN
from .settings import PROCESS_VARIABLE, MeterSettings
from .step_tracker import IGNORE, RECORD, SKIP, StepTracker

Result = TypeVar("Result")

STOPPED = "the script was stopped during the dry run"


class Session:
    """Metering of this process, which starts with its first process group, backward pass or update.

    An error in the metering ends it, and is reported as a note. The script goes on.
    """

    def __init__(self, settings: MeterSettings) -> None:
        self.settings = settings
        self.cpu_clock = CpuClock()
        self.tracker: StepTracker | None = None  # None: this process is not metered, or not yet, or not any more
        self._has_started = self._is_forked_process = False
        self._client: AgentClient | None = None
        self._dry_run: DryRun | None = None
        self._parameters = TrainedParameters()
        self._known_optimisers: set[int] = set()
        self.install_forward_marks: Callable[[], None] = lambda: None  # until PyTorch is imported
        os.register_at_fork(after_in_child=self._leave_child_alone)
        if self.is_dry_run:
            self._dry_run = DryRun(Path(settings.output), settings.dry_run_steps)
            self._dry_run.write(NO_GROUP)

    @property
    def is_dry_run(self) -> bool:
        return self.settings.mode == DRY_RUN

    @property
    def is_in_child(self) -> bool:
        """Return whether this process was forked by the metered one."""
        return self._is_forked_process

    @property
    def watches_forward_passes(self) -> bool:
        """Return whether forward passes have to be marked now."""
        return not self._has_started or (self.tracker is not None and self.tracker.watches_forward_passes)

    def start(self) -> None:
        """Start the metering, unless it has started. Processes that this one starts from now on are not metered."""
        if self._has_started:
            return
        self._has_started = True
        os.environ[PROCESS_VARIABLE] = str(os.getpid())
        try:
            self._connect()
        except Exception as error:  # noqa: BLE001 - the script goes on
            self.fail(error)

    def _connect(self) -> None:
        schedule = self.settings.step_schedule
        pacer = Pacer(schedule)
        if self._dry_run is not None:
            sys.modules["torch"].set_num_threads(1)  # the CPU time of one thread is the time of the step
            self.tracker = StepTracker(self.cpu_clock, pacer, self._dry_run, RECORD)
            return
        self._client = AgentClient(self.settings.socket)
        self._client.send_hello(os.getpid(), sys.modules["torch"].__version__)
        knows_evaluations = schedule is not None and not schedule.begins_without_gradient
        self.tracker = StepTracker(time.monotonic, pacer, self._client, SKIP if knows_evaluations else IGNORE)

    def note_optimiser(self, optimiser: Any) -> None:
        """Remember the parameters of an optimiser that makes its first update."""
        if not self.is_dry_run and id(optimiser) not in self._known_optimisers:
            self._known_optimisers.add(id(optimiser))
            self._parameters.add_optimiser(optimiser)

    def note_process_group(self) -> None:
        """Start the metering, because the script creates a process group."""
        self.start()
        if self._dry_run is not None:
            self._dry_run.has_process_group = True
            self._dry_run.write(STOPPED)

    def guard(self, function: Callable[[StepTracker], Result]) -> Result | None:
        """Return the result of a function of the step tracker; None if there is no tracker, or after an error."""
        if self.tracker is None:
            return None
        try:
            return function(self.tracker)
        except Exception as error:  # noqa: BLE001 - the script goes on
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """End the metering because of an error, and report it."""
        text = f"the metering has ended: {type(error).__name__}: {error}"
        self.tracker = None
        try:
            if self._client is not None:
                self._client.send_note(text)
                self._client.close()
        except OSError:
            pass
        else:
            if self._client is None:
                sys.stderr.write(f"ensayo: {text}\n")
        if self._dry_run is not None:
            self._dry_run.stop(text)
        self._client = None

    def finish(self, script_error: str) -> None:
        """Report the end of the script, with the exception that ended it, if one did."""
        self.guard(StepTracker.finish_updated_step)
        if self._dry_run is not None:
            self._dry_run.write_unfinished(script_error)
        if self._client is not None and self.tracker is not None:
            client, collectives = self._client, self.tracker.collectives
            self.guard(lambda _: client.send_end(collectives, self._parameters.digest()))
        self.tracker = None

    def _leave_child_alone(self) -> None:
        if self._has_started:
            self._is_forked_process = True
            self.tracker = self._client = self._dry_run = None
