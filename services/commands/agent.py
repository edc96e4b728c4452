"""Agent of a node that runs a user's command: starts it at the start gate, paces it, and logs what it does."""

import asyncio
import json
import os
import platform
import resource
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.commands import launch
from services.commands.control_service import CommandControlClient
from services.commands.inside.ensayo_meter.protocol import END, HELLO, NOTE, STEP
from services.commands.log_lines import MetricPatterns
from services.commands.meter_server import serve_meter
from services.commands.step_log import CommandStepLog
from services.plan import CommandPlan, NodePlan
from services.runtime.clock import Clock
from services.runtime.pacing import unit_duration_factor
from services.runtime.run_log import RunLog
from services.schema.errors import CommandFailed
from services.worker.event_runner import ScenarioEventRunner

MAX_OUTPUT_LINE_BYTES = 1 << 20
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
    _is_training: bool = False
    _interface_bytes_at_start: int | None = None
    _training_scope: AsyncExitStack = field(default_factory=AsyncExitStack)  # in which the scenario's events run
    _last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def __post_init__(self) -> None:
        self._steps = CommandStepLog(self.plan, self.clock, self.log)
        self._metrics = MetricPatterns(self.plan.workload.metrics if self.node.rank == 0 else {})
        variation = self.node.variation
        self._duration_factor = (
            (lambda step: variation.duration_factor(self.plan.seed, self.node.rank, step))
            if variation
            else unit_duration_factor
        )

    async def run_command(self) -> None:
        """Run the command, and report its end to the coordinator.

        Raises:
            CommandFailed: the command has ended with another exit code than 0.
        """
        self._log_start()
        await self.control.join()
        async with self._training_scope:
            with tempfile.TemporaryDirectory(prefix="ensayo-command-") as folder:
                scratch = Path(folder)
                async with serve_meter(scratch / "meter.sock", self._handle_message):
                    exit_code = await self._run_process(scratch)
            self._steps.add_last_collectives(())
        self.log.log_event("command_end", {"exit_code": exit_code})
        if exit_code:
            raise CommandFailed(self._explain_exit_code(exit_code))
        await self.control.await_training_start()  # of a command that has never said that it is ready
        self._log_totals()
        await self.control.leave(self._steps.steps, self._samples)

    async def _run_process(self, scratch: Path) -> int:
        """Start the command, pass on its output, and return its exit code; a signal has a negative code."""
        files, settings_file = scratch / "files", scratch / "meter.json"
        files.mkdir()
        launch.link_command_files(Path(self.plan.workload.folder), files)
        settings = launch.meter_settings(self.plan, self.node, scratch / "meter.sock", self.group_settings)
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
        if (
            self.plan.profile is None
        ):  # nothing is known about its collectives: no message may ever say that it is ready
            await self._await_training_start()
        output = asyncio.create_task(self._pass_on_output(process.stdout))
        exit_code = await process.wait()
        await asyncio.wait((output,), timeout=OUTPUT_TIMEOUT_S)
        if not output.done():
            output.cancel()
        return exit_code

    async def _handle_message(self, message: Mapping[str, Any]) -> float | None:
        """Handle a message of the metering, and return the compute time of the next step in wall seconds."""
        match message["kind"]:
            case kind if kind == HELLO:
                self.log.log_event("command_meter", {key: message[key] for key in message if key != "kind"})
                await self._await_training_start()
                return await self._begin_step(0)
            case kind if kind == STEP:
                self._steps.add_step(message, self._compute_s)
                return await self._begin_step(message["number"] + 1)
            case kind if kind == END:
                self._steps.add_last_collectives(message["collectives"])
                if message["parameters_sha256"]:
                    self.log.log_event("node_hash", message["parameters_sha256"], step=self._steps.steps)
            case kind if kind == NOTE:
                self.log.log_event("command_note", message["text"])
        return None

    async def _begin_step(self, step: int) -> float | None:
        """Begin the events of a step, and return the wall seconds that its compute has to take."""
        await self.events.begin_events_of_step(step)
        compute_s = self.plan.step_compute_s(self.node)
        if compute_s is None:
            return None
        now_s = self.clock.now()
        end_s = self.events.slowdowns.end_of_compute_s(now_s, compute_s * self._duration_factor(step))
        self._compute_s = self.clock.to_wall_s(end_s - now_s)
        return self._compute_s

    async def _await_training_start(self) -> None:
        """Wait until the commands of all nodes are ready to train; return at once if the training has started."""
        if not self._is_training:
            self._is_training = True
            start_s = await self.control.await_training_start()
            await self._training_scope.enter_async_context(self.events.run_events(start_s))
            self._interface_bytes_at_start = self.read_interface_bytes()

    async def _pass_on_output(self, output: asyncio.StreamReader | None) -> None:
        """Copy the output of the command to standard error, and report the metrics in it."""
        while output is not None and (line := await _read_line(output)):
            text = line.decode(errors="replace").rstrip("\r\n")
            sys.stderr.write(text + "\n")
            if text.strip():
                self._last_lines.append(text.strip())
            if values := self._metrics.find_values(text):
                await self.control.report_metrics(values, self._steps.steps, self._samples * self.plan.workers)
        sys.stderr.flush()

    @property
    def _samples(self) -> int:
        return self._steps.steps * self.plan.workload.batch_per_worker

    def _explain_exit_code(self, exit_code: int) -> str:
        how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        last_line = f"; its last line is: {self._last_lines[-1]}" if self._last_lines else " without any output"
        return f"the command of {self.node.name} {how}{last_line}"

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
        usage, bytes_now = resource.getrusage(resource.RUSAGE_CHILDREN), self.read_interface_bytes()
        start_bytes = self._interface_bytes_at_start
        value = {
            "payload_bytes_sent": round(self._steps.payload_bytes),
            "messages_sent": self._steps.collectives,
            "interface_bytes_sent": None if bytes_now is None or start_bytes is None else bytes_now - start_bytes,
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "steps": self._steps.steps,
            "deadlines": self._steps.deadlines,
            "missed_deadlines": self._steps.missed_deadlines,
            "uncounted_operations": sorted(self._steps.uncounted),
            "foreign_operations": sorted(self._steps.foreign),
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
