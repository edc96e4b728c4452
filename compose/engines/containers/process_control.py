"""Faults of nodes in containers: killed, frozen and continued by the Docker daemon."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from docker.models.containers import Container

from compose.runs.trials.node_runner import NodeProcessControl, TrialFailed
from services.cluster.node_faults import NodeAction

KILL_TIMEOUT_S, POLL_INTERVAL_S = 10.0, 0.005  # wall seconds
MECHANISMS: Mapping[NodeAction, str] = {
    "kill": "docker kill",
    "freeze": "docker pause",
    "thaw": "docker unpause",
    "start": "docker start",
}


@dataclass(frozen=True)
class ContainerProcessControl(NodeProcessControl):
    """Control of the processes of nodes in containers.

    The kernel freezes all processes of a container at once (`docker pause`), as SIGSTOP does with one process.
    """

    find_container: Callable[[str], Container]  # by the name of its node
    exit_codes: Mapping[str, int]  # of the nodes that have ended, kept up to date by their engine

    def apply_action(self, action: NodeAction, node_name: str) -> None:
        container = self.find_container(node_name)
        match action:
            case "kill":
                container.kill()
                self._wait_until_ended(node_name)
            case "freeze":
                container.pause()
            case "thaw":
                container.unpause()
            case "start":
                raise TrialFailed(f"{node_name} can't be started again in its container")

    def describe_mechanism(self, action: NodeAction) -> str:
        return MECHANISMS[action]

    def _wait_until_ended(self, node_name: str) -> None:
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while node_name not in self.exit_codes:
            if time.monotonic() > deadline:
                raise TrialFailed(f"{node_name} did not end within {KILL_TIMEOUT_S:g} s after it was killed")
            time.sleep(POLL_INTERVAL_S)
