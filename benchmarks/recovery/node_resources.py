"""Memory and open file descriptors of the nodes of a run, sampled while it trains."""

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
SAMPLE_INTERVAL_S = 5.0  # wall seconds
START_S = 10.0  # wall seconds: younger processes still import modules and open their first connections
RESIDENT_KB = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


class NodeSample(NamedTuple):
    """Resources of the process of a node at one moment."""

    time_s: float  # of a monotonic clock
    node: str
    pid: int
    resident_bytes: int
    descriptors: int


@dataclass(frozen=True)
class ResourceGrowth:
    """Resources of one process of a node, soon after its start and at its last sample."""

    node: str
    seconds: float  # wall, between both samples
    resident_bytes: tuple[int, int]
    descriptors: tuple[int, int]


@contextmanager
def sample_node_resources(runs_folder: Path) -> Iterator[list[NodeSample]]:
    """Sample all nodes of the runs in a folder until the context ends; yield the list that receives the samples.

    Nodes are processes of this host or of its containers. Processes of other users are left out, unless root samples.
    """
    samples: list[NodeSample] = []
    is_over = threading.Event()

    def sample_until_over() -> None:
        while not is_over.wait(SAMPLE_INTERVAL_S):
            samples.extend(list_node_samples(runs_folder))

    thread = threading.Thread(target=sample_until_over, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def list_node_samples(runs_folder: Path) -> Iterator[NodeSample]:
    """Yield a sample of each node that runs now and belongs to a run in a folder."""
    scenario_folders = [path for path in runs_folder.iterdir() if path.is_dir() and not path.is_symlink()]
    run_names = [path.name.encode() for folder in scenario_folders for path in folder.iterdir()]
    for process in PROC.glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            node = _find_node_name(process, run_names)
            if node:
                yield _sample_process(process, node)


def _find_node_name(process: Path, run_names: Iterable[bytes]) -> str:
    """Return the node whose process this is; empty if it is no node of these runs."""
    words = (process / "cmdline").read_bytes().split(b"\0")
    is_init = Path(os.fsdecode(words[0])).name.endswith("init")  # of a container: it has the command of the node, too
    if is_init or b"services.node" not in words or b"node" not in words:
        return ""
    # A process of this host has the trial folder in its command, a container has files of the folder as mounts.
    belonging = b" ".join(words) + (process / "mountinfo").read_bytes()
    is_of_runs = any(name in belonging for name in run_names)
    return words[words.index(b"node") + 1].decode() if is_of_runs else ""


def _sample_process(process: Path, node: str) -> NodeSample:
    (resident_kb,) = RESIDENT_KB.findall((process / "status").read_text(encoding="utf-8"))
    descriptors = sum(1 for _ in (process / "fd").iterdir())
    return NodeSample(time.monotonic(), node, int(process.name), 1024 * int(resident_kb), descriptors)


def find_longest_lives(samples: Iterable[NodeSample]) -> dict[str, ResourceGrowth]:
    """Return the growth of the longest-lived process of each node, by node; nodes without a long life are left out."""
    by_process: dict[tuple[str, int], list[NodeSample]] = {}
    for sample in samples:
        by_process.setdefault((sample.node, sample.pid), []).append(sample)
    found: dict[str, ResourceGrowth] = {}
    for (node, _), life in by_process.items():
        grown_up = [sample for sample in life if sample.time_s >= life[0].time_s + START_S]
        if not grown_up:
            continue
        growth = _compare(node, grown_up[0], grown_up[-1])
        if node not in found or growth.seconds > found[node].seconds:
            found[node] = growth
    return found


def _compare(node: str, first: NodeSample, last: NodeSample) -> ResourceGrowth:
    return ResourceGrowth(
        node,
        last.time_s - first.time_s,
        (first.resident_bytes, last.resident_bytes),
        (first.descriptors, last.descriptors),
    )
