"""Engine `local`: every node is a process of this host, on the loopback interface.

The transport shapes the links of the nodes.
"""

import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, ClassVar

from compose.engines.base import TrialEngine, TrialEventObserver
from compose.engines.transport_shaping import make_shaping_records, unemulated_links_error
from compose.runs.interrupt import defer_stop_signals
from compose.runs.labels import RUN_ENV_VARIABLE
from compose.runs.python_program import python_command, python_environment
from compose.runs.secrets_folder import RUNNER_PIPE_FILE, open_secrets_folder
from compose.runs.trials.node_runner import NodeProcessControl, TrialNodeRunner, select_last_line
from compose.runs.trials.supervisor import TrialSupervisor
from services.cluster.addresses import Address, AddressAllocator, NodeAddresses
from services.cluster.links.fluid_link import AtomicFloatFile
from services.cluster.node_faults import NodeAction
from services.plan import COORDINATOR, Plan
from services.plan.trial_outcome import LinkShapingRecord, TrialOutcome
from services.runtime.control import OPEN_START_GATE_SIGNAL
from services.scenario.run_settings import EngineName
from services.schema.component import FrozenRecord
from services.schema.errors import HostError

TERMINATE_TIMEOUT_S = 2.0
FIRST_PORT, LAST_PORT = 10_000, 65_535  # that nodes may use; many services have a port below
EPHEMERAL_PORTS_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # first and last port for outgoing connections
SHARED_LINKS_FILE = "pipes"  # common state of the links that several nodes share, in the folder of the secrets
# One BLAS thread per node, so that sums have the same bits on all engines. Freed buffers stay in the allocator instead
# of going back to the kernel, since page faults cost several times more than copies.
NODE_ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_TOP_PAD_": "67108864",
    "MALLOC_ARENA_MAX": "1",
    # The event loop that gRPC used before its event engine needs a quarter less CPU time per message. A receiver that
    # is woken once for the rest of a message, instead of for every packet, needs a tenth less on links with a rate. A
    # gRPC release that does not know these names logs a warning and continues.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener,tcp_frame_size_tuning,tcp_rcv_lowat",
}
# By which the faults of nodes are applied; they reach all processes of a node.
ACTION_SIGNALS: Mapping[NodeAction, signal.Signals] = {
    "kill": signal.SIGKILL,
    "freeze": signal.SIGSTOP,
    "thaw": signal.SIGCONT,
    "exhaust_memory": signal.SIGKILL,  # a process of this host has no memory limit of its own
}
NODE_COMMAND = python_command("services.node")


def node_process_environment(run_name: str) -> dict[str, str]:
    """Return the environment variables of a node's process."""
    return {**python_environment(), **NODE_ENVIRONMENT, RUN_ENV_VARIABLE: run_name}


class LoopbackPorts(FrozenRecord):
    """Free TCP ports of this host, two per node.

    One port is for the data plane, the other for the control plane.
    """

    ports: tuple[int, ...]

    def node_addresses(self, node_index: int) -> NodeAddresses:
        """Return the data address and the control address of a node, both on loopback.

        `node_index` is counted from 0.
        """
        data, control = self.ports[2 * node_index : 2 * node_index + 2]
        return NodeAddresses(data=Address(host="127.0.0.1", port=data), control=Address(host="127.0.0.1", port=control))


def _ports_in_order_of_choice() -> Iterator[int]:
    """Yield all ports that nodes may use: first those out of reach of outgoing connections, both in random order."""
    first_ephemeral, last_ephemeral = map(int, EPHEMERAL_PORTS_FILE.read_text(encoding="ascii").split())
    ports = random.sample(range(FIRST_PORT, LAST_PORT + 1), LAST_PORT + 1 - FIRST_PORT)
    yield from sorted(ports, key=lambda port: first_ephemeral <= port <= last_ephemeral)


def _is_port_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class LocalEngine(TrialEngine):
    """Engine that runs every node as a process of this host."""

    name: ClassVar[EngineName] = "local"

    def missing_software(self) -> str | None:
        """Return None, since processes need nothing beyond Python."""
        return None

    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:  # noqa: ARG002 - ports belong to no run
        """Return free loopback ports for the nodes of a run.

        Ports that the kernel may give to outgoing connections come last. It could give them away between two trials.

        Raises:
            HostError: there are not enough free ports.
        """
        ports = tuple(islice(filter(_is_port_free, _ports_in_order_of_choice()), 2 * node_count))
        if len(ports) < 2 * node_count:
            raise HostError(
                f"{node_count} nodes need {2 * node_count} TCP ports, but only {len(ports)} are free from {FIRST_PORT} "
                "on; end other programs, or use the engine simulated"
            )
        return LoopbackPorts(ports=ports)

    def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
        """Run the nodes of one trial as processes of this host; see `TrialEngine.run_trial`."""
        shaping = make_shaping_records(plan, "transport")
        if reason := unemulated_links_error(plan, shaping):
            return TrialOutcome(trial=plan.trial, engine=self.name, status="failed", reason=reason, shaping=shaping)
        with open_secrets_folder(plan.run, (node.name for node in plan.nodes)) as secrets_folder:
            AtomicFloatFile.create(secrets_folder / SHARED_LINKS_FILE, len(plan.network.shared_links))
            nodes = NodeProcesses(plan, trial_folder, secrets_folder)
            return TrialSupervisor(plan, nodes, trial_folder, observer).run_trial()


def _kill_session(node_pid: int) -> None:
    """Kill what a node has started, such as the command of a user and its children: each node has a session."""
    with suppress(ProcessLookupError):
        os.killpg(node_pid, signal.SIGKILL)


@dataclass(frozen=True)
class LocalProcessControl(NodeProcessControl):
    """Faults of nodes that are processes of this host: signals to all processes of a node, and a new start."""

    nodes: "NodeProcesses"

    def apply_action(self, action: NodeAction, node_name: str) -> None:
        if action == "start":
            self.nodes.start_again(node_name)
        else:
            self.nodes.send_signal_to_session(node_name, ACTION_SIGNALS[action])

    def describe_mechanism(self, action: NodeAction) -> str:
        match action:
            case "start":
                return "new process"
            case "exhaust_memory":
                return "SIGKILL, as an emulated lack of memory"
        return ACTION_SIGNALS[action].name


class NodeProcesses(TrialNodeRunner):
    """Nodes of one trial, each a process of this host."""

    def __init__(self, plan: Plan, trial_folder: Path, secrets_folder: Path) -> None:
        self._plan = plan
        self._trial_folder = trial_folder
        self._secrets_folder = secrets_folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start one process per node.

        Standard output goes to `<node>.log`, standard error to `<node>.err`.
        """
        for node in self._plan.nodes:
            with self._log_path(node.name).open("wb") as out, self._stderr_path(node.name).open("wb") as err:
                self._processes[node.name] = self._start_node_process(node.name, out, err)

    def shape_links(self) -> dict[str, LinkShapingRecord]:
        """Return the link records that follow from the trial plan.

        The transport inside the nodes shapes the links, the kernel does not.
        """
        return make_shaping_records(self._plan, "transport")

    def start_training(self) -> None:
        """Signal the coordinator's process to start training; until then, all nodes wait."""
        self._processes[COORDINATOR].send_signal(OPEN_START_GATE_SIGNAL)

    def exit_codes(self) -> dict[str, int]:
        """Return the exit codes of the processes that have ended, by node name."""
        codes = {name: process.poll() for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def last_stderr_line(self, node_name: str) -> str:
        return select_last_line(self._stderr_path(node_name).read_text(errors="replace"))

    def process_control(self) -> NodeProcessControl:
        """Return the interface by which declared faults are applied to the processes."""
        return LocalProcessControl(self)

    def send_signal_to_session(self, node_name: str, sent_signal: signal.Signals) -> None:
        """Send a signal to all processes of a node; after SIGKILL, wait until the node has ended."""
        process = self._processes[node_name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent_signal)
        if sent_signal == signal.SIGKILL:
            process.wait()

    def start_again(self, node_name: str) -> None:
        """Start a node that has ended again; its output is appended to that of the ended process.

        Stop signals are deferred until the new process is known to `stop`.
        """
        with (
            defer_stop_signals(),
            self._log_path(node_name).open("ab") as out,
            self._stderr_path(node_name).open("ab") as err,
        ):
            self._processes[node_name] = self._start_node_process(node_name, out, err)

    def stop(self) -> tuple[str, ...]:
        """Terminate all processes of the nodes, and remove empty files of standard error.

        Processes that ignore the signal are killed.
        """
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a frozen process could not end
        for process in self._processes.values():
            try:
                process.wait(TERMINATE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _kill_session(process.pid)
        for name in self._processes:
            if not self._stderr_path(name).stat().st_size:
                self._stderr_path(name).unlink()
        return ()

    def _start_node_process(self, node_name: str, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        files = {
            "--plan": self._trial_folder / "plan.json",
            "--secrets": self._secrets_folder / node_name,
            "--pipes": self._secrets_folder / SHARED_LINKS_FILE,
            "--runner-pipe": self._secrets_folder / RUNNER_PIPE_FILE,
            "--trial-folder": self._trial_folder,
        }
        options = [word for option, path in files.items() for word in (option, str(path))]
        command = [*NODE_COMMAND, "node", node_name, *options]
        # Every node gets its own session: Ctrl-C then reaches only the runner, which stops its nodes in order.
        return subprocess.Popen(  # noqa: S603 - our own module, our own arguments
            command,
            stdout=stdout,
            stderr=stderr,
            env=node_process_environment(self._plan.run),
            start_new_session=True,
        )

    def _log_path(self, node_name: str) -> Path:
        return self._trial_folder / "logs" / f"{node_name}.log"

    def _stderr_path(self, node_name: str) -> Path:
        return self._trial_folder / "logs" / f"{node_name}.err"
