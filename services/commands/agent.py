"""Agent of a node that runs a user's command: starts it at the start gate, paces it, and logs what it does."""

import asyncio
import json
import os
import platform
import re
import resource
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from services.commands import launch
from services.commands.control_service import CommandControlClient
from services.commands.log_lines import MetricPatterns, explain_missing_metrics
from services.commands.meter_server import serve_meter
from services.commands.process_end import describe_process_end, has_lost_connection
from services.commands.script_process.ensayo_meter.protocol import BEGIN, END, HELLO, NOTE, STEP
from services.commands.step_log import CommandStepLog
from services.commands.working_folder import prepare_command_folder
from services.plan import CommandPlan, NodePlan
from services.runtime.clock import Clock
from services.runtime.pacing import unit_duration_factor
from services.runtime.run_log import RunLog
from services.schema.errors import CommandFailed
from services.worker.event_runner import ScenarioEventRunner

MAX_OUTPUT_LINE_BYTES, MAX_OUTPUT_BYTES = 1 << 20, 16 << 20
OUTPUT_CUT_TEXT = f"ensayo: further output is left out: it is longer than {MAX_OUTPUT_BYTES >> 20} MiB\n"
KEPT_LINES = 3  # of the command's output, for the message of an error
OUTPUT_TIMEOUT_S = 5.0  # for the last lines, if a process that the command has started keeps its output open


@dataclass
class CommandAgent:
    """Runs the command of one worker from the start gate to its end."""

    plan: CommandPlan
    node: NodePlan
    control: CommandControlClient
    clock: Clock
    log: RunLog
    read_interface_bytes: Callable[[], int | None]  # that the shaped network interface has sent; None: unknown
    events: ScenarioEventRunner
    group_settings: Mapping[str, Any]  # of the process group of Ensayo
    _compute_s: float | None = None  # wall seconds of compute of the running step; None: not paced
    _is_ready: asyncio.Event = field(default_factory=asyncio.Event)  # the command is ready to train
    _training_start: asyncio.Task[None] | None = None  # done when the training has started
    _has_process_group: bool = False  # the metering has reported itself
    _has_begun: bool = False  # the first step, or what counts as such
    _interface_bytes_at_start: int | None = None
    _training_scope: AsyncExitStack = field(default_factory=AsyncExitStack)  # in which the scenario's events run
    _notes: list[str] = field(default_factory=list)  # problems of the metering
    _found_metrics: set[str] = field(default_factory=set)  # that a line of the output has stated
    _last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def __post_init__(self) -> None:
        self._steps = CommandStepLog(self.plan, self.node.rank, self.clock, self.log)
        self._metrics = MetricPatterns(self.plan.workload.metrics if self.node.rank == 0 else {})
        pattern = self.plan.workload.step_line
        self._step_lines = re.compile(pattern) if pattern and self.plan.step_profile is None else None
        variation = self.node.variation
        self._duration_factor = (
            (lambda step: variation.duration_factor(self.plan.seed, self.node.rank, step))
            if variation
            else unit_duration_factor
        )

    async def run_command(self) -> None:
        """Run the command, and report its end to the coordinator.

        Raises:
            CommandFailed: the command has ended with another exit code than 0, or while other ranks waited for it.
        """
        self._log_start()
        await self.control.join()
        try:
            await self._run_training()
        finally:
            if self._training_start is not None:
                self._training_start.cancel()
        self._log_totals()
        await self.control.leave(self._steps.steps, self._samples, self._steps.last_step_end_s)

    async def _run_training(self) -> None:
        async with self._training_scope:
            with tempfile.TemporaryDirectory(prefix="ensayo-command-") as folder:
                scratch = Path(folder)
                async with serve_meter(scratch / "meter.sock", self._handle_message) as meter_failure:
                    exit_code = await self._run_process(scratch, meter_failure)
            self._steps.add_last_collectives(())
            self.log.log_event("command_end", {"exit_code": exit_code})
            await self._report_process_end(exit_code)
            await self._begin_training(self.clock.now())  # of a command that has made no step
            await self._await_training_start()

    async def _run_process(self, scratch: Path, meter_failure: asyncio.Future[None]) -> int:
        """Start the command, pass on its output, and return its exit code; a signal has a negative code."""
        files, settings_file = scratch / "files", scratch / "meter.json"
        files.mkdir()
        prepare_command_folder(Path(self.plan.workload.folder), self.plan.workload.code_folder, files)
        settings = launch.meter_settings(self.plan, scratch / "meter.sock", self.group_settings)
        settings_file.write_text(json.dumps(settings))
        words = launch.command_words(self.plan)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=files,
                env=launch.command_environment(self.plan, self.node, settings_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=MAX_OUTPUT_LINE_BYTES,
                preexec_fn=launch.end_with_parent,
            )
        except OSError as error:
            raise CommandFailed(f"command {words[0]} can't be started: {os.strerror(error.errno or 0)}") from error
        output = asyncio.create_task(self._pass_on_output(process.stdout))
        if self.plan.step_profile is None:  # it may never make a step
            self._prepare_training()
            await self._begin_training(self.clock.now())
            await self._await_training_start()
        exit_code = await self._await_exit(process, (output, meter_failure))
        await asyncio.wait((output,), timeout=OUTPUT_TIMEOUT_S)
        if output.done():
            await output  # raises its error
        output.cancel()
        return exit_code

    async def _await_exit(
        self, process: asyncio.subprocess.Process, helpers: tuple[asyncio.Future[None], asyncio.Future[None]]
    ) -> int:
        """Wait for the end of the command, and return its exit code. An error of a helper ends the command.

        Raises:
            CommandFailed: the command is not ready to train within `timeouts.start`; other ranks wait for it.
        """
        exit_code, ready = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._is_ready.wait())
        start_timeout_s = self.plan.timeouts.start
        waits = (exit_code, ready)
        await asyncio.wait(waits, timeout=self.clock.to_wall_s(start_timeout_s), return_when=asyncio.FIRST_COMPLETED)
        if not exit_code.done() and not ready.done():
            process.kill()
            await exit_code
            failure = (
                f"the command of {self.node.name} has made no process group within {start_timeout_s:g} s, as its dry "
                "run did; see its output in the log, or increase timeouts.start"
            )
            cause = await self.control.report_process_end(failure, has_lost_connection=True)
            raise CommandFailed(f"{cause}; then {failure}" if cause else failure)
        pending: set[asyncio.Future[Any]] = {exit_code, *helpers}
        while not exit_code.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if failed := next((helper for helper in done if helper is not exit_code and helper.exception()), None):
                process.kill()
                await exit_code
                await failed
        return await exit_code

    async def _handle_message(self, message: Mapping[str, Any]) -> float | None:
        """Handle a message of the metering, and return the compute time of the next step in wall seconds."""
        match message["kind"]:
            case kind if kind == HELLO:
                self._has_process_group = True
                self.log.log_event("command_meter", {key: message[key] for key in message if key != "kind"})
                self._prepare_training()
            case kind if kind == BEGIN:
                begin_s = message["begin_s"] / self.clock.to_wall_s(1.0)
                await self._begin_training(begin_s)
                return await self._begin_step(0, begin_s)
            case kind if kind == STEP:
                start_s = await self.control.complete_first_step() if message["number"] == 0 else -inf
                self._steps.add_step(message, self._compute_s, start_s)
                return await self._begin_step(message["number"] + 1, message["end_s"] / self.clock.to_wall_s(1.0))
            case kind if kind == END:
                self._steps.add_last_collectives(message["collectives"])
                if message["parameters_sha256"]:
                    self.log.log_event("node_hash", message["parameters_sha256"], step=self._steps.steps)
            case kind if kind == NOTE:
                self.log.log_event("command_note", message["text"])
                self._notes.append(message["text"])
                await self._begin_training(self.clock.now())  # a metering that has ended reports no step
        return None

    async def _begin_step(self, step: int, begin_s: float) -> float | None:
        """Begin the events of a step, and return the wall seconds that its compute has to take.

        The step has begun at the virtual time `begin_s`: at the end of the update before it.
        """
        await self.events.begin_events_of_step(step)
        compute_s = self.plan.step_compute_s(self.node)
        if compute_s is None or self.plan.step_profile is None:
            return None
        end_s = self.events.slowdowns.end_of_compute_s(begin_s, compute_s * self._duration_factor(step))
        self._compute_s = self.clock.to_wall_s(end_s - begin_s)
        return self._compute_s

    def _prepare_training(self) -> None:
        """Record that the command is ready to train. Its first collectives follow."""
        self._is_ready.set()
        if self._interface_bytes_at_start is None:
            self._interface_bytes_at_start = self.read_interface_bytes()

    async def _begin_training(self, begin_s: float) -> None:
        """Report the begin of the first step, unless it was reported. Events begin when that of all nodes is known."""
        if not self._has_begun:
            self._has_begun = True
            await self.control.report_first_step(begin_s)
            self._training_start = asyncio.create_task(self._run_events_from_start())

    async def _await_training_start(self) -> None:
        if self._training_start is not None:
            await asyncio.shield(self._training_start)

    async def _run_events_from_start(self) -> None:
        start_s = await self.control.await_training_start()
        await self._training_scope.enter_async_context(self.events.run_events(start_s))

    async def _pass_on_output(self, output: asyncio.StreamReader | None) -> None:
        """Copy the output of the command to standard error, and report the metrics in it.

        Output beyond MAX_OUTPUT_BYTES is not copied.
        """
        copied_bytes = 0
        while output is not None and (line := await _read_line(output)):
            text = line.decode(errors="replace").rstrip("\r\n")
            if copied_bytes <= MAX_OUTPUT_BYTES:
                copied_bytes += len(line)
                sys.stderr.write(text + "\n" if copied_bytes <= MAX_OUTPUT_BYTES else OUTPUT_CUT_TEXT)
            self._log_step_of_line(text)
            if text.strip():
                self._last_lines.append(text.strip())
            if values := self._metrics.find_values(text):
                self._found_metrics |= values.keys()
                await self.control.report_metrics(values, self._steps.steps, self._samples * self.plan.workers)
        sys.stderr.flush()

    def _log_step_of_line(self, line: str) -> None:
        """Log a step if a line marks its end, unless the metering measures the steps."""
        if self._step_lines is not None and self._step_lines.search(line):
            self._steps.add_unmetered_step(self.clock.now())

    @property
    def _samples(self) -> int:
        return self._steps.steps * self.plan.workload.batch_per_worker

    async def _report_process_end(self, exit_code: int) -> None:
        """Report the end of the command to the coordinator.

        Raises:
            CommandFailed: the command has failed, or other ranks wait for its process group. The message first names
                the command that ended before and may be the cause.
        """
        steps = self._steps.steps if self._has_process_group else None
        end = describe_process_end(self.node.name, exit_code, steps, self._last_lines, self.plan.workload)
        # A lost connection can end the threads of a process group by a signal, without any output.
        is_aborted = exit_code < 0 and self._has_process_group
        is_lost = exit_code != 0 and (is_aborted or has_lost_connection(self._last_lines))
        cause = await self.control.report_process_end(end, has_lost_connection=is_lost)
        if is_lost and cause:
            raise CommandFailed(f"{cause}; then {end}")
        needs_group = self.plan.step_profile is not None and self.plan.workers > 1
        if exit_code or (needs_group and not self._has_process_group):
            raise CommandFailed(end)

    def _log_start(self) -> None:
        interpreter = self.plan.workload.interpreter
        facts = {
            "python": platform.python_version(),
            "command_python": interpreter.version if interpreter else platform.python_version(),
            "device": "cpu",
            "device_reason": "commands run on the CPU",
        }
        self.log.log_event("node_start", facts)

    def _log_totals(self) -> None:
        """Log the bytes that the node has sent since the start of the training, and the CPU time of the command."""
        missing = [name for name in self._metrics.pattern_by_metric if name not in self._found_metrics]
        self._notes += [explain_missing_metrics(missing, self._last_lines)] if missing else []
        usage, bytes_now = resource.getrusage(resource.RUSAGE_CHILDREN), self.read_interface_bytes()
        start_bytes = self._interface_bytes_at_start
        value = {
            "payload_bytes_sent": round(self._steps.payload_bytes),
            "scheduled_bytes_sent": round(self._steps.scheduled_bytes),
            "messages_sent": self._steps.collectives,
            "interface_bytes_sent": None if bytes_now is None or start_bytes is None else bytes_now - start_bytes,
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "steps": self._steps.steps,
            "deadlines": self._steps.deadlines,
            "missed_deadlines": self._steps.missed_deadlines,
            "notes": self._notes,
            "uncounted_operations": sorted(self._steps.uncounted),
            "gloo_fallback_operations": sorted(self._steps.gloo_fallbacks),
        }
        self.log.log_event("node_stop", value)


async def _read_line(output: asyncio.StreamReader) -> bytes:
    """Return the next line, or a part of a line that is too long; empty at the end."""
    try:
        return await output.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as error:
        return await output.readexactly(error.consumed)
