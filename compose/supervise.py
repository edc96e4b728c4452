"""One trial from start to end, whatever the nodes are: start, join, shape, open the gate, wait, collect, remove."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.engines.base import Shaped, Status, Watcher
from compose.host import busy_cores, cpu_times
from services.errors import HostError
from services.plan import COORDINATOR, Plan
from services.runlog import TOKEN

POLL_S = 0.02
LEAVE_S = 10.0  # wall seconds for nodes to exit once the coordinator is done


class Nodes(ABC):
    """The started nodes of one trial."""

    @abstractmethod
    def start(self) -> None:
        """Start all nodes; they wait for each other and for the gate."""

    @abstractmethod
    def shape(self) -> dict[str, Shaped]:
        """Make the links what the plan says, and read back what they are."""

    @abstractmethod
    def open_gate(self) -> None:
        """Tell the coordinator that the network is as the plan wants it."""

    @abstractmethod
    def exit_codes(self) -> dict[str, int]:
        """Exit codes of the nodes that have ended."""

    @abstractmethod
    def complaint(self, node: str) -> str:
        """The last words of a node on its standard error."""

    @abstractmethod
    def stop(self) -> None:
        """Remove whatever is left; all logs are in the trial folder afterwards."""


class TrialFailed(HostError):
    """A node ended with an error, or never came up."""


@dataclass
class Tail:
    """Events of a log that is still being written."""

    path: Path
    _position: int = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """What has been written since the last call; a line that is not finished waits for the next."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                _, token, event = line.decode(errors="replace").partition(TOKEN)
                if token:
                    yield json.loads(event)


@dataclass
class Supervisor:
    """Leads one trial through its stages and remembers how long each took."""

    plan: Plan
    nodes: Nodes
    folder: Path
    watch: Watcher
    timings_s: dict[str, float] = field(default_factory=dict)
    shaping: dict[str, Shaped] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    _stopped: bool = False

    def run(self) -> Status:
        """The whole trial; nodes are gone when this returns or raises."""
        try:
            with self._stage("up"):
                self.nodes.start()
                self.shaping = self.nodes.shape()
                self._await_joined()
            self.nodes.open_gate()
            before = cpu_times()
            with self._stage("run"):
                self._await_end()
            self.host["busy_cores"] = busy_cores(before, cpu_times())
            return self._status("success", "")
        except TrialFailed as failure:
            return self._status("failed", str(failure))
        finally:
            with self._stage("down"):
                self.nodes.stop()

    def _stage(self, name: str) -> "Stage":
        return Stage(self.timings_s, name)

    def _await_joined(self) -> None:
        everybody = {node.name for node in self.plan.nodes} - {COORDINATOR}
        self._wait(lambda: self._joined >= everybody, self.plan.timeouts.start, "not all nodes joined")

    def _await_end(self) -> None:
        self._wait(lambda: self._stopped, self.plan.timeouts.run, "the run did not end")
        self._wait(lambda: len(self.nodes.exit_codes()) == len(self.plan.nodes), LEAVE_S, "not all nodes left")

    def _wait(self, done: "Callable[[], bool]", timeout_s: float, what: str) -> None:
        """Poll until `done`; pass on what the coordinator logs; fail as soon as a node does."""
        tail = self._tail
        deadline = time.monotonic() + timeout_s * self.plan.dilation
        while not done():
            for event in tail.events():
                self._note(event)
            self._check_nodes()
            if time.monotonic() > deadline:
                raise TrialFailed(f"{what} within {timeout_s:g} s; joined: {', '.join(sorted(self._joined)) or 'none'}")
            time.sleep(POLL_S)
