"""Kill of a node from outside: SIGKILL to its container or process, as by another program of the host."""

import os
import signal
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path

import docker

from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_ENV_VARIABLE, RUN_LABEL
from services.schema.errors import HostError


class NodeKiller(ABC):
    """Killer of one node, which is found before the moment of the kill, because finding it takes time."""

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL to all processes of the node. Some milliseconds later they have ended."""


class ContainerKiller(NodeKiller):
    """Killer of a node in a container, by the Docker daemon."""

    def __init__(self, run_name: str, node_name: str) -> None:
        with closing(docker.from_env()) as client:
            labels = [f"{RUN_LABEL}={run_name}", f"{NODE_LABEL}={node_name}"]
            containers = client.containers.list(filters={"label": labels})
            ids = [str(each.id) for each in containers if each.labels[ROLE_LABEL] != HELPER_ROLE]
        if len(ids) != 1:
            raise HostError(f"{node_name} has {len(ids)} running containers, not one")
        self._container_id = ids[0]
        self._client = docker.from_env()

    def kill(self) -> None:
        with closing(self._client):
            self._client.api.kill(self._container_id)


class ProcessKiller(NodeKiller):
    """Killer of a node that is a process of this host."""

    def __init__(self, run_name: str, node_name: str) -> None:
        mark, arguments = f"{RUN_ENV_VARIABLE}={run_name}".encode(), [b"node", node_name.encode()]
        found = [folder for folder in Path("/proc").glob("[0-9]*") if _is_node(folder, mark, arguments)]
        if len(found) != 1:
            raise HostError(f"{node_name} has {len(found)} processes, not one")
        self._process_id = int(found[0].name)

    def kill(self) -> None:
        os.killpg(self._process_id, signal.SIGKILL)  # each node has a session of its own


def _is_node(process_folder: Path, mark: bytes, arguments: list[bytes]) -> bool:
    """Return whether a process belongs to a run, leads a session, and its command line has two adjacent arguments."""
    process_id = int(process_folder.name)
    try:
        if os.getsid(process_id) != process_id:
            return False  # a fork that has not begun its own program yet
        if mark not in (process_folder / "environ").read_bytes().split(b"\0"):
            return False
        words = (process_folder / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return False
    return any(words[place : place + 2] == arguments for place in range(len(words)))
