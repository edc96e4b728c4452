"""All nodes in one process, in virtual time: the same code on the in-process fabric."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from compose.engines.base import Engine, Preparing, Status, Watcher
from compose.engines.local import ENVIRONMENT
from compose.engines.transport_shaping import refusal, shaped
from compose.runs.labels import RUN_VARIABLE
from compose.runs.supervisor import Tail
from services.cluster.addresses import Addressing, Nowhere
from services.plan import COORDINATOR, Plan
from services.scenario.scenario import EngineName

POLL_S = 0.02
RUNG = "fluid"
DONE = "done"  # what the simulator answers to a trial that went well; anything else is its complaint


class SimulatedEngine(Engine):
    """A process that simulates trial after trial; one BLAS thread like every node, so that bits agree everywhere."""

    name: ClassVar[EngineName] = "simulated"

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def missing(self) -> str | None:
        return None

    def prepare(self, watch: Preparing) -> None:  # noqa: ARG002 - takes no time worth telling
        """Start the simulator: its imports take longer than a short trial."""
        self._process = _simulator()

    def addressing(self, run: str, nodes: int) -> Addressing:  # noqa: ARG002 - nobody listens anywhere
        return Nowhere()

    def run(self, plan: Plan, folder: Path, watch: Watcher) -> Status:
        started = time.monotonic()
        if reason := refusal(plan, shaped(plan, RUNG)):
            return _status(plan, reason, 0.0)
        tail = Tail(folder / "logs" / f"{COORDINATOR}.log")
        answer = self._ask(folder)
        while not (ended := answer()):
            self._pass_on(plan, tail, watch)
        self._pass_on(plan, tail, watch)
        return _status(plan, ended.strip(), time.monotonic() - started)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):  # it may have died before it read what it was given
                self._process.communicate()

    def _ask(self, folder: Path) -> Callable[[], str]:
        """Hand the simulator a trial; the function returned waits a little for its answer, empty until it comes."""
        process = self._process
        if process is None or process.poll() is not None:  # it died in the trial before
            self.close()
            self._process = process = _simulator()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the simulator has no pipes")
        out = process.stdout
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()

        def answer() -> str:
            ready, _, _ = select.select([out], [], [], POLL_S)
            return (out.readline() or f"the simulator has died with exit code {process.wait()}") if ready else ""

        return answer

    def _pass_on(self, plan: Plan, tail: Tail, watch: Watcher) -> None:
        for event in tail.events():
            watch.event(plan, event)


def _simulator() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "services.node", "simulate"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ENVIRONMENT | {RUN_VARIABLE: "simulated"},
        start_new_session=True,
    )


def _status(plan: Plan, answer: str, wall_s: float) -> Status:
    failed = answer != DONE
    return Status(
        trial=plan.trial,
        engine=plan.engine,
        status="failed" if failed else "success",
        reason=answer if failed else "",
        timings_s={"run": round(wall_s, 3)},
        exit_codes=dict.fromkeys((node.name for node in plan.nodes), int(failed)),
        shaping=shaped(plan, RUNG),
    )
