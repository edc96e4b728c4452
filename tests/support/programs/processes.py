"""Processes of this host: which processes a process has started, and whether they still run."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any


def descendant_pids(pid: int) -> Iterator[int]:
    """Yield the process ids of all children of a process, of their children, and so on."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from descendant_pids(child)


def running(pids: Iterable[int]) -> list[int]:
    """Return the process ids of the processes that have not ended."""
    return [pid for pid in pids if _is_running(pid)]


def wait_until_empty(read_remaining: Callable[[], Collection[Any]], timeout_s: float) -> None:
    """Wait until a function returns an empty collection; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while remaining := read_remaining():
        assert time.monotonic() < deadline, f"after {timeout_s} s there are still {remaining}"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    """Return whether a process has not ended; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
