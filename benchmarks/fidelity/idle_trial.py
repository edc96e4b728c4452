"""Nodes that wait at their gate, links shaped and read back by the engine's own code; programs run beside them."""

import inspect
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import docker
from docker.models.containers import Container

from benchmarks.fidelity import node_program
from compose.engines.base import Engine
from compose.engines.containers.containers import NodeContainers
from compose.engines.containers.engine import DockerEngine, read_compose_host, set_secrets_owner
from compose.runs.certificates import issue_certificates
from compose.runs.labels import NODE_LABEL, RUN_LABEL, secrets_folder_prefix
from compose.runs.supervisor import LogTail
from services.plan import COORDINATOR, Plan, make_plan
from services.scenario.scenario import Scenario, TrialSpec
from services.schema.errors import HostError

BEGIN_S = 0.7  # for programs to start and to connect, before anything is measured
JOIN_S, POLL_S = 60.0, 0.05
FIRST_PORT = 9000
WORKLOAD: Mapping[str, Any] = {
    "dataset": {"kind": "synthetic_regression", "samples": 640, "features": 64, "outputs": 1},
    "model": {"kind": "linear"},
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 8,
    "epochs": 1,
}


def trial_of(cluster: Mapping[str, Any], **keys: Any) -> TrialSpec:
    """The only trial of a small scenario with this cluster; `keys` are others of the scenario."""
    document: dict[str, Any] = {
        "name": "fidelity",
        "workload": dict(WORKLOAD),
        "cluster": dict(cluster),
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
        "timeouts": {"start": "10min"},
    }
    (trial,) = Scenario.decode(document | keys).trials()
    return trial


def plan_of(trial: TrialSpec, engine: Engine, dilation: float = 1.0, alpha_s: float = 0.0) -> Plan:
    """Its plan, under a run's name that nobody else has; `make_plan` tells the rest."""
    name = f"fidelity-{time.time_ns():x}"
    nodes = 1 + trial.strategy.phases().server_count + trial.scenario.cluster.workers
    addressing = engine.choose_addresses(name, nodes)
    return make_plan(trial, name, engine.name, addressing, dilation=dilation, alpha_s=alpha_s)


@dataclass
class Lab:
    """A trial that never begins; a context, since its nodes must go away."""

    plan: Plan
    engine: DockerEngine
    proves: bool = False  # whether the engine's own probe of the links is run as well, as before training
    _stack: ExitStack = field(default_factory=ExitStack)
    _containers: dict[str, Container] = field(default_factory=dict)
    _port: int = FIRST_PORT

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        client = self._stack.enter_context(closing(docker.from_env(max_pool_size=len(self.plan.nodes) + 4)))
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ensayo-fidelity-")))
        secrets = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=secrets_folder_prefix(self.plan))))
        (folder / "logs").mkdir()
        (folder / "plan.json").write_text(self.plan.model_dump_json())
        host = read_compose_host(client, self.engine.images, secrets)
        issue_certificates(self.plan.run, (node.name for node in self.plan.nodes), secrets)
        set_secrets_owner(secrets, host.user)
        nodes = NodeContainers(self.plan, folder, host, self.engine.choose_mechanisms(self.plan))
        self._stack.callback(nodes.stop)
        nodes.start()
        nodes.shape_links()
        self._await_joined(LogTail(folder / "logs" / f"{COORDINATOR}.log"))
        if self.proves:
            nodes.probe_links()
        found = client.containers.list(filters={"label": f"{RUN_LABEL}={self.plan.run}"})
        self._containers = {container.labels[NODE_LABEL]: container for container in found}

    def _await_joined(self, tail: LogTail) -> None:
        """Nodes that still start would take the cores that are to be measured."""
        missing = {node.name for node in self.plan.nodes} - {COORDINATOR}
        deadline = time.monotonic() + JOIN_S
        while missing:
            missing -= {event["value"]["node"] for event in tail.read_new_events() if event["key"] == "membership"}
            if time.monotonic() > deadline:
                raise HostError(f"{', '.join(sorted(missing))} did not join within {JOIN_S:g} s")
            time.sleep(POLL_S)

    def address(self, node: str) -> str:
        """Of a node on the data network."""
        return self.plan.node(node).addresses.data.host

    def port(self) -> int:
        """One that no program of this lab has had."""
        self._port += 1
        return self._port

    def programs(self, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Run programs of `benchmarks.fidelity.node_program` at the same time, each in the container of a node; their answers.

        Raises:
            HostError: one of them failed.
        """
        with ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(lambda item: self._program(*item), asked))

    def _program(self, node: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        command = ["python", "-c", inspect.getsource(node_program), json.dumps(asked)]
        code, (out, err) = self._containers[node].exec_run(command, demux=True)
        if code:
            last = (err or b"no message").decode(errors="replace").strip().splitlines()[-1]
            raise HostError(f"{node}: {asked['do']}: {last}")
        answer: dict[str, Any] = json.loads(out)
        return answer

    def flows(
        self, pairs: Sequence[tuple[str, str]], seconds: float, warm_s: float, buffer: int = 0
    ) -> tuple[dict[tuple[str, str], float], float, list[dict[str, Any]]]:
        """Send along all pairs at once; payload bytes/s of each and of all together, and what senders counted.

        Args:
            pairs: (source, target).
            seconds: that are measured.
            warm_s: before that.
            buffer: of receivers, in bytes; 0 leaves it to the kernel.
        """
        at = time.monotonic() + BEGIN_S
        since, until = at + warm_s, at + warm_s + seconds
        port, targets = self.port(), sorted({target for _, target in pairs})
        receivers = [(target, self._receiver(target, pairs, port, since, until, buffer)) for target in targets]
        senders = [
            (source, {"do": "send", "to": self.address(target), "port": port, "at": at, "until": until + 0.2})
            for source, target in pairs
        ]
        answers = self.programs([*receivers, *senders])
        heard = dict(zip(targets, answers, strict=False))
        each = {(a, b): heard[b]["by_peer"][self.address(a)] for a, b in pairs}
        return each, sum(answer["bytes_per_s"] for answer in heard.values()), answers[len(receivers) :]

    def _receiver(
        self, target: str, pairs: Sequence[tuple[str, str]], port: int, since: float, until: float, buffer: int
    ) -> dict[str, Any]:
        streams = sum(target == b for _, b in pairs)
        listen = {"address": self.address(target), "port": port, "streams": streams, "buffer": buffer}
        return {"do": "receive", "since": since, "until": until, **listen}

    def message_s(self, source: str, target: str, sizes: Sequence[int], gap_s: float) -> list[float]:
        """Seconds that messages of these sizes take, one after the other on one stream, each after a pause."""
        port = self.port()
        took, _ = self.programs(
            [
                (target, {"do": "messages", "address": self.address(target), "port": port, "count": len(sizes)}),
                (
                    source,
                    {"do": "message", "to": self.address(target), "port": port, "sizes": list(sizes), "gap_s": gap_s},
                ),
            ]
        )
        return list(took["seconds"])

    def round_trips_s(self, source: str, target: str, count: int, gap_s: float) -> list[float]:
        """Seconds to a node and back, `count` times."""
        port = self.port()
        _, trips = self.programs(
            [
                (target, {"do": "echo", "address": self.address(target), "port": port, "count": count}),
                (source, {"do": "ping", "to": self.address(target), "port": port, "count": count, "gap_s": gap_s}),
            ]
        )
        return list(trips["seconds"])
