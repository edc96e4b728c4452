"""Starts of `ensayo run` as processes of their own, and kills of their nodes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.errors import APIError

from benchmarks.endurance.leftovers import RunPlace, find_processes
from compose.runs.labels import NODE_LABEL, ROLE_LABEL

LONGEST_RUN_S = 900.0  # a run that takes longer counts as hanging
NODE_ROLES = ("coordinator", "worker", "server")
LINK = "1gbit"


def make_scenario(name: str, workers: int, **keys: Any) -> dict[str, Any]:
    """Return a scenario with one short trial of a ring of workers; `keys` are added, or replace others."""
    return {
        "name": name,
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [32]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": workers, "worker": {"throughput": "1000/s", "uplink": LINK, "downlink": LINK}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
        "attempts": 1,
        **keys,
    }


def start_run(place: RunPlace, engine_name: str, scenario: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start `ensayo run` in a process group of its own, as a shell does; the output is written to a file."""
    path = place.folder / f"{scenario['name']}.yaml"
    path.write_text(yaml.safe_dump(dict(scenario), sort_keys=False))
    return start_ensayo(place, "run", str(path), "--engine", engine_name, "--runs", str(place.runs_folder))


def start_ensayo(place: RunPlace, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `ensayo` with these arguments in a process group of its own; the output is written to `place.output`."""
    with place.output.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "ensayo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=place.environment,
            process_group=0,
        )


def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a run and return its exit code; a run that hangs is killed.

    Raises:
        TimeoutError: the run did not end in time.
    """
    try:
        return process.wait(LONGEST_RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise TimeoutError(f"the run did not end within {LONGEST_RUN_S:g} s") from None


@dataclass(frozen=True)
class NodeOfRun:
    """A running node, which can be killed."""

    name: str
    container_id: str = ""  # empty: the node is a process of the host
    pid: int = 0

    def kill(self) -> bool:
        """Kill the node with SIGKILL, and return whether it still ran."""
        try:
            if self.container_id:
                with closing(docker.from_env()) as client:
                    client.api.kill(self.container_id, "SIGKILL")
            else:
                os.kill(self.pid, signal.SIGKILL)
        except (APIError, ProcessLookupError):
            return False
        return True


def find_nodes(place: RunPlace) -> Sequence[NodeOfRun]:
    """Return the running nodes of the runs at a place, in the order of their names."""
    nodes = _find_node_containers() if place.engine else _find_node_processes(place)
    return sorted(nodes, key=lambda node: node.name)


def _find_node_containers() -> Iterator[NodeOfRun]:
    with closing(docker.from_env()) as client:
        for container in client.api.containers():
            if container["Labels"].get(ROLE_LABEL) in NODE_ROLES:
                yield NodeOfRun(container["Labels"][NODE_LABEL], container_id=container["Id"])


def _find_node_processes(place: RunPlace) -> Iterator[NodeOfRun]:
    for pid, words in find_processes(place.runs_folder):
        with suppress(ValueError):
            yield NodeOfRun(words[words.index("node") + 1], pid=pid)


def find_run_folders(place: RunPlace) -> set[Path]:
    """Return the folders of all runs at a place."""
    return set(place.runs_folder.glob("*/*Z-*"))
