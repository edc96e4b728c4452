"""Nodes as processes of this host, on loopback; the transport shapes their links."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, ClassVar

from compose.engines.base import Engine, Shaped, Status, Watcher
from compose.engines.transport_shaping import refusal, shaped
from compose.runs.certificates import issue
from compose.runs.labels import RUN_VARIABLE, secrets_prefix
from compose.runs.supervisor import Nodes, Supervisor, Tail
from services.cluster.addresses import Address, Addressing, Place
from services.cluster.fluid_link import SharedCells
from services.plan import COORDINATOR, Plan
from services.runtime.control import OPEN_GATE
from services.scenario.scenario import EngineName
from services.schema.component import Record

KILL_S = 2.0
PIPES = "pipes"  # what nodes know together of the pipes that they share, beside their secrets
# One BLAS thread per node, so that sums have the same bits everywhere; buffers that go back to the allocator and not to
# the kernel, since page faults cost several times more than copies.
ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_TOP_PAD_": "67108864",
    "MALLOC_ARENA_MAX": "1",
    # gRPC's older way to wait for sockets needs a quarter less CPU time per message, and a reader that is woken for the
    # rest of a message instead of each packet a tenth less on links with a rate; a gRPC that doesn't know these names
    # logs a warning and goes on.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener,tcp_frame_size_tuning,tcp_rcv_lowat",
}


class Loopback(Record):
    """Free ports of this host, two per node."""

    ports: tuple[int, ...]

    def place(self, number: int) -> Place:
        data, control = self.ports[2 * number : 2 * number + 2]
        return Place(data=Address(host="127.0.0.1", port=data), control=Address(host="127.0.0.1", port=control))


class LocalEngine(Engine):
    """One process per node."""

    name: ClassVar[EngineName] = "local"

    def missing(self) -> str | None:
        return None

    def addressing(self, run: str, nodes: int) -> Addressing:  # noqa: ARG002 - ports belong to no run
        with ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in range(2 * nodes)]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            return Loopback(ports=tuple(each.getsockname()[1] for each in sockets))

    def run(self, plan: Plan, folder: Path, watch: Watcher) -> Status:
        shaping = shaped(plan, "transport")
        if reason := refusal(plan, shaping):
            return Status(trial=plan.trial, engine=self.name, status="failed", reason=reason, shaping=shaping)
        with tempfile.TemporaryDirectory(prefix=secrets_prefix(plan)) as secrets:
            SharedCells.create(Path(secrets) / PIPES, len(plan.network.pipes))
            issue(plan.run, (node.name for node in plan.nodes), Path(secrets))
            nodes = Processes(plan, folder, Path(secrets))
            return Supervisor(plan, nodes, Tail(folder / "logs" / f"{COORDINATOR}.log"), watch).run()


class Processes(Nodes):
    """The processes of one trial."""

    def __init__(self, plan: Plan, folder: Path, secrets: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._secrets = secrets
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for node in self._plan.nodes:
            with self._log(node.name).open("wb") as out, self._errors(node.name).open("wb") as err:
                self._processes[node.name] = self._popen(node.name, out, err)

    def shape(self) -> dict[str, Shaped]:
        """The transport of every node does it, from the plan; there is nothing in the kernel to read back."""
        return shaped(self._plan, "transport")

    def open_gate(self) -> None:
        self._processes[COORDINATOR].send_signal(OPEN_GATE)

    def exit_codes(self) -> dict[str, int]:
        codes = {name: process.poll() for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def complaint(self, node: str) -> str:
        lines = self._errors(node).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def stop(self) -> tuple[str, ...]:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(KILL_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in self._processes:
            if not self._errors(name).stat().st_size:
                self._errors(name).unlink()
        return ()

    def _popen(self, name: str, out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes]:
        plan, secrets = self._folder / "plan.json", self._secrets / name
        files = {"--plan": plan, "--secrets": secrets, "--pipes": self._secrets / PIPES}
        options = [word for option, path in files.items() for word in (option, str(path))]
        command = [sys.executable, "-m", "services.node", "node", name, *options]
        marks = {RUN_VARIABLE: self._plan.run}
        # A session of its own: Ctrl-C reaches the runner alone, which then stops its nodes in order.
        return subprocess.Popen(  # noqa: S603 - our own module, our own arguments
            command, stdout=out, stderr=err, env=os.environ | ENVIRONMENT | marks, start_new_session=True
        )

    def _log(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.log"

    def _errors(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.err"
