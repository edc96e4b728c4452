"""Faults of nodes in containers: killed, frozen, continued and run out of memory."""

import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus

from docker.errors import APIError
from docker.models.containers import Container

from compose.runs.trials.node_runner import NodeProcessControl, TrialFailed
from services.cluster.node_faults import NodeAction
from services.plan import Plan

END_TIMEOUT_S, POLL_INTERVAL_S = 20.0, 0.005  # wall seconds
# Wall seconds in which a container must be frozen. The imports of a node that starts take longer.
FREEZE_TIMEOUT_S, FREEZE_RETRY_DELAY_S = 0.5, 0.02
START_ATTEMPTS = 5
# What the runtime of containers reports when a process has not stopped in time, as on a busy host. It continues the
# processes that have stopped.
BUSY_FREEZER_ERROR = "unable to freeze"
MECHANISMS: Mapping[NodeAction, str] = {
    "kill": "docker kill",
    "freeze": "docker pause",
    "thaw": "docker unpause",
    "start": "docker start",
    "exhaust_memory": "memory limit of the container",
}
PYTHON = "/opt/ensayo/bin/python"
# Takes as much memory as the container may have. The kernel then ends the processes of the node, not this program,
# because these processes get the highest score.
EXHAUST_MEMORY_PROGRAM = """
import mmap, os, pathlib, sys
for score in pathlib.Path("/proc").glob("[0-9]*/oom_score_adj"):
    if score.parent.name not in ("1", str(os.getpid())):
        score.write_text("1000")
while True:
    memory = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
"""


@dataclass(frozen=True)
class ContainerProcessControl(NodeProcessControl):
    """Control of the processes of nodes in containers.

    The kernel freezes all processes of a container at once (`docker pause`), as SIGSTOP does with one process.
    """

    plan: Plan
    find_container: Callable[[str], Container]  # by the name of its node
    exit_codes: MutableMapping[str, int]  # of the nodes that have ended, kept up to date by their engine
    shape_link_again: Callable[[str], None]  # of a node whose container has a new network interface

    def apply_action(self, action: NodeAction, node_name: str) -> None:
        container = self.find_container(node_name)
        match action:
            case "kill":
                _kill(container)
                self._wait_until_ended(node_name)
            case "freeze":
                if _read_status(container) == "running":  # not so if another fault has frozen or ended the node
                    _freeze(container, node_name)
            case "thaw":
                if _read_status(container) == "paused":  # not so if another fault has thawed or ended the node
                    container.unpause()
            case "exhaust_memory":
                self._exhaust_memory(container, node_name)
            case "start":
                self._start_again(container, node_name)

    def describe_mechanism(self, action: NodeAction) -> str:
        return MECHANISMS[action]

    def _start_again(self, container: Container, node_name: str) -> None:
        """Start a node again in its container, whose link is shaped before the node can join.

        The new process is frozen while the link is shaped. It could not join that soon: its imports take longer than
        the freeze takes to begin. A process that can't be frozen in time is killed, and another one is started.

        Raises:
            TrialFailed: no process could be frozen in time.
        """
        for _ in range(START_ATTEMPTS):
            del self.exit_codes[node_name]
            container.start()
            try:
                _freeze(container, node_name)
                break
            except TrialFailed as error:
                failure = error
            _kill(container)
            self._wait_until_ended(node_name)
        else:
            raise failure
        try:
            self.shape_link_again(node_name)
        finally:
            container.unpause()

    def _exhaust_memory(self, container: Container, node_name: str) -> None:
        """Exceed the memory limit of a node's container, and wait until the kernel has ended the node.

        Raises:
            TrialFailed: the node did not end, or not for its memory.
        """
        memory_bytes = self.plan.node_plan(node_name).memory_bytes
        container.exec_run([PYTHON, "-c", EXHAUST_MEMORY_PROGRAM, str(memory_bytes)], detach=True)
        self._wait_until_ended(node_name)
        container.reload()
        if not container.attrs["State"]["OOMKilled"]:
            raise TrialFailed(f"{node_name} ended, but Docker does not report that it ran out of memory")

    def _wait_until_ended(self, node_name: str) -> None:
        deadline = time.monotonic() + END_TIMEOUT_S
        while node_name not in self.exit_codes:
            if time.monotonic() > deadline:
                raise TrialFailed(f"{node_name} did not end within {END_TIMEOUT_S:g} s after a fault that ends it")
            time.sleep(POLL_INTERVAL_S)


def _read_status(container: Container) -> str:
    """Return the present status of a container, such as `running`, `paused` or `exited`."""
    container.reload()
    return str(container.status)


def _kill(container: Container) -> None:
    """Kill the processes of a container, unless they have just ended."""
    try:
        container.kill()
    except APIError as error:
        if error.status_code != HTTPStatus.CONFLICT:  # Docker's response if the container is not running
            raise


def _freeze(container: Container, node_name: str) -> None:
    """Freeze all processes of a container; try again for a while if the kernel can't stop them in time.

    Raises:
        TrialFailed: the processes could not be frozen in time.
    """
    deadline = time.monotonic() + FREEZE_TIMEOUT_S
    while True:
        try:
            container.pause()
        except APIError as error:
            if BUSY_FREEZER_ERROR not in str(error):
                raise
            if time.monotonic() > deadline:
                raise TrialFailed(f"{node_name} could not be frozen in {FREEZE_TIMEOUT_S:g} s: {error}") from error
            time.sleep(FREEZE_RETRY_DELAY_S)
        else:
            return
