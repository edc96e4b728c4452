"""One trial from start to end, whatever the nodes are: start, join, shape, open the gate, wait, collect, remove."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.engines.base import CpuThrottling, EventObserver, LinkRecord, TrialOutcome
from compose.host.host_metrics import Evidence
from compose.runs.interrupt import held_back
from services.plan import COORDINATOR, Plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.schema.errors import EnsayoError

POLL_S = 0.02
REPORTED = 4  # exit code of a node that says itself what went wrong, perhaps with another node
LEAVE_S = 10.0  # wall seconds for nodes to exit once the coordinator has said that the run is over


class TrialFailed(EnsayoError):
    """A node ended with an error or did not come up or go on in time, or its engine did not do what was asked."""


class Nodes(ABC):
    """The nodes of one trial on this host."""

    @abstractmethod
    def start(self) -> None:
        """Start all nodes; they wait for each other and for the gate."""

    @abstractmethod
    def shape(self) -> dict[str, LinkRecord]:
        """Make the links what the plan says, and read back what they are."""

    def prove(self) -> dict[str, LinkRecord]:
        """Measure the links while all nodes wait for the gate; the entries of `shape` with what was found.

        Raises:
            TrialFailed: a link is not what the plan says.
        """
        return {}

    def account(self) -> dict[str, LinkRecord]:
        """What links have counted during the run, while they are still there; the entries with it."""
        return {}

    @abstractmethod
    def open_gate(self) -> None:
        """Tell the coordinator that the network is as the plan wants it."""

    @abstractmethod
    def exit_codes(self) -> dict[str, int]:
        """Exit codes of the nodes that have ended."""

    @abstractmethod
    def complaint(self, node: str) -> str:
        """The last words of a node on its standard error."""

    def throttling(self) -> dict[str, CpuThrottling]:
        """How often the kernel has held each node back since it was started; nodes without a quota are absent."""
        return {}

    @abstractmethod
    def stop(self) -> tuple[str, ...]:
        """Remove whatever is left; all logs are in the trial folder afterwards.

        Returns:
            What an engine does not let go of although nothing runs in it: no fault of the trial.
        """


@dataclass
class Tail:
    """The events of a log that is still being written."""

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
                _, token, event = line.decode(errors="replace").partition(LOG_LINE_PREFIX)
                if token:
                    yield json.loads(event)


@dataclass
class Supervisor:
    """Leads one trial through its stages and remembers how long each took."""

    plan: Plan
    nodes: Nodes
    tail: Tail
    watch: EventObserver
    timings_s: dict[str, float] = field(default_factory=dict)
    shaping: dict[str, LinkRecord] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    throttling: dict[str, CpuThrottling] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    _left: set[str] = field(default_factory=set)
    _over: bool = False

    def run(self) -> TrialOutcome:
        """The whole trial; nodes are gone when this returns or raises, or the reason says which are not.

        Whatever goes wrong fails this trial and no other; only a request to stop is passed on.
        """
        reasons: list[str] = []
        exit_codes: dict[str, int] = {}
        kept: tuple[str, ...] = ()
        try:
            with _noted(reasons):
                self._lead()
        finally:
            with _noted(reasons):
                exit_codes = self.nodes.exit_codes()
            with self._stage("down"), held_back(), _noted(reasons):
                kept = self.nodes.stop()
        return TrialOutcome(
            trial=self.plan.trial,
            engine=self.plan.engine,
            status="failed" if reasons else "success",
            reason="; ".join(dict.fromkeys(reasons)),
            timings_s=self.timings_s,
            exit_codes=exit_codes,
            shaping=self.shaping,
            throttling=self.throttling,
            kept=kept,
            host=self.host,
        )

    def _lead(self) -> None:
        with self._stage("up"), held_back():
            self.nodes.start()
        with self._stage("gate"):
            with held_back():
                self.shaping = self.nodes.shape()
            self._await(self._everybody_joined, self.plan.timeouts.start, "not all nodes joined")
            with held_back():
                self.shaping |= self.nodes.prove()
            self.nodes.open_gate()
        with self._stage("run"), self._witnessed():
            self._await(lambda: self._over, self.plan.timeouts.run, "the run did not end")
        self.shaping |= self.nodes.account()
        self._await(self._everybody_left, LEAVE_S / self.plan.dilation, "not all nodes left")

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.timings_s[name] = round(time.monotonic() - started, 3)

    @contextmanager
    def _witnessed(self) -> Iterator[None]:
        """Keep what happens on the host meanwhile, however it ends."""
        evidence = Evidence(self.nodes.throttling)
        evidence.start()
        try:
            yield
        finally:
            self.host |= evidence.stop()
            self.throttling = evidence.throttling

    def _everybody_joined(self) -> bool:
        return self._joined >= {node.name for node in self.plan.nodes} - {COORDINATOR}

    def _everybody_left(self) -> bool:
        return len(self.nodes.exit_codes()) == len(self.plan.nodes)

    def _await(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Poll until `done`, passing on what the coordinator logs; `timeout_s` is virtual.

        Raises:
            TrialFailed: a node ended with an error, or the time is over.
        """
        deadline = time.monotonic() + timeout_s * self.plan.dilation
        while True:
            ended = self.nodes.exit_codes()  # first, so that the log tells why they were free to end
            for event in self.tail.events():
                self._note(event)
            self._check(ended)
            if done():
                return
            if time.monotonic() > deadline:
                raise TrialFailed(f"{what} within {timeout_s:g} s")
            time.sleep(POLL_S)

    def _note(self, event: dict[str, Any]) -> None:
        """Remember what the next stage waits for, and show the event to whoever looks on."""
        if event["key"] == "membership":
            known = self._joined if event["value"]["event"] == "joined" else self._left
            known.add(event["value"]["node"])
        self._over |= event["key"] == "run_stop"
        self.watch.event_logged(self.plan, event)

    def _check(self, ended: dict[str, int]) -> None:
        """Nodes that were killed come first: others that end with an error may have missed them."""
        for node, code in sorted(ended.items(), key=lambda item: item[1] == REPORTED):
            if code:
                raise TrialFailed(f"{node} ended with exit code {code}: {self.nodes.complaint(node) or 'no message'}")
            if not self._over and node not in self._left:
                raise TrialFailed(f"{node} left before the run was over")


@contextmanager
def _noted(reasons: list[str]) -> Iterator[None]:
    """An error of the body is one more reason why the trial failed."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever happens to a trial must not take the others with it
        reasons.append(why(error))


def why(error: Exception) -> str:
    """An error as a trial's reason; the name of its type says whose it is, unless it was raised as a reason."""
    return str(error) if isinstance(error, TrialFailed) else f"{type(error).__name__}: {error}"
