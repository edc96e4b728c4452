"""Trials whose training never starts: real nodes behind shaped links, in whose containers measuring programs run."""

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
from compose.engines.base import TrialEngine
from compose.engines.containers.containers import NodeContainers
from compose.engines.containers.engine import DockerEngine, read_host_properties, set_owner_of_nodes
from compose.runs.labels import NODE_LABEL, RUN_LABEL
from compose.runs.secrets_folder import open_secrets_folder
from compose.runs.trials.log_tail import LogTail
from services.plan import COORDINATOR, Plan, make_plan
from services.scenario.scenario import Scenario, TrialSpec
from services.schema.errors import HostError

PROGRAM_START_S = 0.7  # time for programs to start and connect before anything is measured
JOIN_TIMEOUT_S, POLL_INTERVAL_S = 60.0, 0.05
FIRST_PORT = 9000
SMALL_WORKLOAD: Mapping[str, Any] = {
    "dataset": {"kind": "synthetic_regression", "samples": 640, "features": 64, "outputs": 1},
    "model": {"kind": "linear"},
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 8,
    "epochs": 1,
}


def make_trial(cluster: Mapping[str, Any], **other_keys: Any) -> TrialSpec:
    """Return the only trial of a small scenario with this cluster.

    Args:
        cluster: value of the scenario key `cluster`.
        other_keys: values of other top-level keys of the scenario, which replace those of the small scenario.
    """
    document: dict[str, Any] = {
        "name": "fidelity",
        "workload": dict(SMALL_WORKLOAD),
        "cluster": dict(cluster),
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
        "timeouts": {"start": "10min"},
    }
    (trial,) = Scenario.decode(document | other_keys).trials()
    return trial


def make_trial_plan(trial: TrialSpec, engine: TrialEngine, dilation: float = 1.0, alpha_s: float = 0.0) -> Plan:
    """Return the plan of a trial under a unique run name; `dilation` and `alpha_s` as in `make_plan`."""
    run_name = f"fidelity-{time.time_ns():x}"
    node_count = 1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers
    addressing = engine.choose_addresses(run_name, node_count)
    return make_plan(trial, run_name, engine.name, addressing, dilation=dilation, alpha_s=alpha_s)


@dataclass
class IdleTrial:
    """Trial whose nodes are started but never train. Used as a context manager, which removes the nodes at its end."""

    plan: Plan
    engine: DockerEngine
    runs_link_probes: bool = False  # whether the engine probes the links at the start, as it does before training
    _stack: ExitStack = field(default_factory=ExitStack)
    _containers: dict[str, Container] = field(default_factory=dict)
    _last_port: int = FIRST_PORT

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
        node_names = [node.name for node in self.plan.nodes]
        secrets = self._stack.enter_context(open_secrets_folder(self.plan.run, node_names))
        (folder / "logs").mkdir()
        (folder / "plan.json").write_text(self.plan.model_dump_json())
        host = read_host_properties(client, self.engine.images, secrets)
        set_owner_of_nodes(secrets, host.user)
        nodes = NodeContainers(self.plan, folder, host, self.engine.choose_shaping_mechanisms(self.plan))
        self._stack.callback(nodes.stop)
        nodes.start()
        nodes.shape_links()
        self._wait_for_nodes(LogTail(folder / "logs" / f"{COORDINATOR}.log"))
        if self.runs_link_probes:
            nodes.probe_links()
        containers = client.containers.list(filters={"label": f"{RUN_LABEL}={self.plan.run}"})
        self._containers = {container.labels[NODE_LABEL]: container for container in containers}

    def _wait_for_nodes(self, coordinator_log: LogTail) -> None:
        """Wait until all nodes have joined. Starting nodes would use the cores that are to be measured."""
        missing = {node.name for node in self.plan.nodes} - {COORDINATOR}
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while missing:
            missing -= {
                event["value"]["node"] for event in coordinator_log.read_new_events() if event["key"] == "membership"
            }
            if time.monotonic() > deadline:
                missing_nodes = ", ".join(sorted(missing))
                raise HostError(f"{missing_nodes} did not join the trial within {JOIN_TIMEOUT_S:g} s")
            time.sleep(POLL_INTERVAL_S)

    def node_address(self, node_name: str) -> str:
        """Return the address of a node on the data network."""
        return self.plan.node_plan(node_name).addresses.data.host

    def next_port(self) -> int:
        """Return a port that no program of this trial has used."""
        self._last_port += 1
        return self._last_port

    def run_programs(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Run programs of `benchmarks.fidelity.node_program` at the same time and return their results.

        Args:
            requests: for each program, the node in whose container it runs, and its name and arguments.

        Raises:
            HostError: a program failed.
        """
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(lambda request: self._run_program(*request), requests))

    def _run_program(self, node_name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        command = ["python", "-c", inspect.getsource(node_program), json.dumps(request)]
        code, (out, err) = self._containers[node_name].exec_run(command, demux=True)
        if code:
            last_line = (err or b"no message").decode(errors="replace").strip().splitlines()[-1]
            raise HostError(f"{node_name}: program {request['program']} failed: {last_line}")
        result: dict[str, Any] = json.loads(out)
        return result

    def measure_flows(
        self, pairs: Sequence[tuple[str, str]], measured_s: float, warm_up_s: float, buffer_bytes: int = 0
    ) -> tuple[dict[tuple[str, str], float], float, list[dict[str, Any]]]:
        """Send between all pairs of nodes at the same time and measure the transfer rates.

        Args:
            pairs: (source, target) of each flow.
            measured_s: seconds in which received bytes are counted.
            warm_up_s: seconds of sending before that.
            buffer_bytes: receive buffer; 0 leaves the size to the kernel.

        Returns:
            The payload bytes/s of each pair, those of all pairs together, and the segment counts of each sender.
        """
        sending_s = time.monotonic() + PROGRAM_START_S
        start_s, end_s = sending_s + warm_up_s, sending_s + warm_up_s + measured_s
        port, targets = self.next_port(), sorted({target for _, target in pairs})
        receivers = [
            (target, self._receive_request(target, pairs, port, start_s, end_s, buffer_bytes)) for target in targets
        ]
        senders = [(source, self._send_request(target, port, sending_s, end_s + 0.2)) for source, target in pairs]
        results = self.run_programs([*receivers, *senders])
        by_target = dict(zip(targets, results, strict=False))
        rates = {(source, target): by_target[target]["by_peer"][self.node_address(source)] for source, target in pairs}
        return rates, sum(result["bytes_per_s"] for result in by_target.values()), results[len(receivers) :]

    def _receive_request(
        self, target: str, pairs: Sequence[tuple[str, str]], port: int, start_s: float, end_s: float, buffer_bytes: int
    ) -> dict[str, Any]:
        return {
            "program": "receive_streams",
            "address": self.node_address(target),
            "port": port,
            "stream_count": sum(target == pair_target for _, pair_target in pairs),
            "start_s": start_s,
            "end_s": end_s,
            "buffer_bytes": buffer_bytes,
        }

    def _send_request(self, target: str, port: int, start_s: float, end_s: float) -> dict[str, Any]:
        address = self.node_address(target)
        return {"program": "send_stream", "target_address": address, "port": port, "start_s": start_s, "end_s": end_s}

    def measure_messages_s(self, source: str, target: str, sizes_bytes: Sequence[int], gap_s: float) -> list[float]:
        """Send messages of these sizes one after the other on one stream, each after a pause. Return their seconds."""
        address, port, sizes = self.node_address(target), self.next_port(), list(sizes_bytes)
        receive = {"program": "receive_messages", "address": address, "port": port, "message_count": len(sizes)}
        send = {
            "program": "send_messages",
            "target_address": address,
            "port": port,
            "sizes_bytes": sizes,
            "gap_s": gap_s,
        }
        received, _ = self.run_programs([(target, receive), (source, send)])
        return list(received["seconds"])

    def measure_round_trips_s(self, source: str, target: str, count: int, gap_s: float) -> list[float]:
        """Send a byte to a node and back `count` times, each after a pause. Return the seconds of each round trip."""
        address, port = self.node_address(target), self.next_port()
        echo = {"program": "echo_bytes", "address": address, "port": port, "byte_count": count}
        measure = {
            "program": "measure_round_trips",
            "target_address": address,
            "port": port,
            "trip_count": count,
            "gap_s": gap_s,
        }
        _, trips = self.run_programs([(target, echo), (source, measure)])
        return list(trips["seconds"])
