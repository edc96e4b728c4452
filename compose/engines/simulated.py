"""All nodes in one process, in virtual time: the same code on the in-process fabric."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

from compose.engines.base import Engine, Shaped, Status, Watcher
from compose.engines.local import ENVIRONMENT, RUN_VARIABLE
from compose.supervise import Tail
from services.plan import COORDINATOR, Addressing, Nowhere, Plan
from services.scenario import EngineName

POLL_S = 0.02


class SimulatedEngine(Engine):
    """One process per trial, with one BLAS thread like every node, so that bits agree with the other engines."""

    name: ClassVar[EngineName] = "simulated"

    def missing(self) -> str | None:
        return None

    def addressing(self, run: str, nodes: int) -> Addressing:  # noqa: ARG002 - nobody listens anywhere
        return Nowhere()

    def run(self, plan: Plan, folder: Path, watch: Watcher) -> Status:
        started = time.monotonic()
        process = self._popen(plan, folder)
        tail = Tail(folder / "logs" / f"{COORDINATOR}.log")
        try:
            while process.poll() is None:
                self._pass_on(plan, tail, watch)
                time.sleep(POLL_S)
        finally:
            process.kill()
            _, complaint = process.communicate()
        self._pass_on(plan, tail, watch)
        return self._status(plan, process.returncode, complaint, time.monotonic() - started)

    def _popen(self, plan: Plan, folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "services", "simulate", folder / "logs", "--plan", folder / "plan.json"]
        environment = os.environ | ENVIRONMENT | {RUN_VARIABLE: plan.run}
        return subprocess.Popen(  # noqa: S603 - our own module, our own arguments
            command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def _pass_on(self, plan: Plan, tail: Tail, watch: Watcher) -> None:
        for event in tail.events():
            watch.event(plan, event)

    def _status(self, plan: Plan, code: int, complaint: str, wall_s: float) -> Status:
        last = complaint.strip().splitlines()[-1:] or ["no message"]
        linked = [node for node in plan.nodes if node.name != COORDINATOR]
        return Status(
            trial=plan.trial,
            engine=plan.engine,
            status="failed" if code else "success",
            reason=last[0] if code else "",
            timings_s={"run": round(wall_s, 3)},
            exit_codes=dict.fromkeys((node.name for node in plan.nodes), code),
            shaping={
                node.name: Shaped(rung="virtual", uplink_bps=node.uplink_bps, downlink_bps=node.downlink_bps)
                for node in linked
            },
        )
