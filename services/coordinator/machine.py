"""How does a run begin, go on and end? Membership, the gate, epochs, the stop rule; no clock, socket or model."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from services.control import Epoch
from services.errors import ProtocolError, Refused
from services.target import Target

GO_ON = ""  # a verdict without a reason to stop


@dataclass(frozen=True)
class Release:
    """Everybody may start."""


@dataclass(frozen=True)
class Evaluate:
    """Measure the quality of the parameters that came with `epoch`, then tell `evaluated`."""

    epoch: Epoch


@dataclass(frozen=True)
class Report:
    """All samples of an epoch, or as many, have been used: their mean training loss is known."""

    epoch: Epoch
    loss: float


@dataclass(frozen=True)
class Answer:
    """The worker that finished the epoch may go on (no reason) or must stop (with a reason)."""

    node: str
    epoch: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """Tell everybody who waits for the end."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """Everybody has left."""


Action: TypeAlias = Release | Evaluate | Report | Answer | Stop | Finish


@dataclass
class Run:
    """The state of one run, as its coordinator knows it.

    In lockstep all workers wait for the evaluation of an epoch, so that all stop after the same step. Otherwise only
    the carrier (the worker whose parameters are evaluated) waits; the others learn of a stop as soon as it is known.
    """

    nodes: frozenset[str]
    workers: tuple[str, ...]  # by rank; rank 0 is the carrier
    epochs: int
    lockstep: bool
    target: Target | None  # stop when it is reached; None: use the whole budget
    plan_sha256: str
    reason: str = GO_ON
    _joined: set[str] = field(default_factory=set)
    _left: set[str] = field(default_factory=set)
    _gate_open: bool = False
    _released: bool = False
    _finished: dict[int, dict[str, Epoch]] = field(default_factory=dict)
    _evaluated: int = 0
    _pass: list[Epoch] = field(default_factory=list)  # reports since the last pass over the data
    _passes: int = 0

    def joined(self, node: str, plan_sha256: str) -> list[Action]:
        """A node is up; a node may say so again.

        Raises:
            Refused: it is not of this run, or was started with another plan.
        """
        if node not in self.nodes:
            raise Refused(f"{node} is not a node of this run")
        if plan_sha256 != self.plan_sha256:
            raise Refused(f"{node} was started with another plan")
        self._joined.add(node)
        return self._release()

    def gate_opened(self) -> list[Action]:
        """The network is as the plan wants it."""
        self._gate_open = True
        return self._release()

    def epoch_ended(self, epoch: Epoch) -> list[Action]:
        """A worker has finished an epoch; it may say so again and is answered once.

        Raises:
            ProtocolError: there is no such worker or no such epoch.
        """
        most = self.epochs if self.lockstep else inf  # a fast worker does more than its share of the budget
        if epoch.node not in self.workers or not 1 <= epoch.number <= most:
            raise ProtocolError(f"{epoch.node} can't finish epoch {epoch.number}")
        reports = self._finished.setdefault(epoch.number, {})
        if epoch.node in reports:
            return []
        reports[epoch.node] = replace(epoch, parameters=b"")  # those of every epoch would fill the memory
        actions: list[Action] = []
        if epoch.node == self.workers[0]:
            actions.append(Evaluate(epoch))
        elif not self.lockstep or epoch.number <= self._evaluated:
            actions.append(Answer(epoch.node, epoch.number, self.reason))
        if self.lockstep and len(reports) == len(self.workers):
            actions.append(Report(reports[self.workers[0]], _mean_loss(reports.values())))
        if not self.lockstep:
            actions.extend(self._pass_over(replace(epoch, parameters=b"")))
        return actions

    def _pass_over(self, epoch: Epoch) -> list[Action]:
        """Out of lockstep fast workers do more epochs: as many reports as there are workers make one pass."""
        self._pass.append(epoch)
        if len(self._pass) < len(self.workers):
            return []
        done, self._pass, self._passes = self._pass, [], self._passes + 1
        return [Report(replace(epoch, number=self._passes), _mean_loss(done))]

    def evaluated(self, epoch: Epoch, metrics: dict[str, float]) -> list[Action]:
        """The quality after an epoch is known."""
        self._evaluated = epoch.number
        stops = self.target is not None and self.target.reached(metrics)
        actions: list[Action] = []
        if stops and not self.reason:
            self.reason = "target reached"
            actions.append(Stop(self.reason))
        waiting = self._finished[epoch.number] if self.lockstep else {epoch.node}
        actions.extend(Answer(node, epoch.number, self.reason) for node in self.workers if node in waiting)
        return actions

    def left(self, node: str) -> list[Action]:
        """A node has done its part; it may say so again.

        Raises:
            ProtocolError: it is not of this run.
        """
        if node not in self.nodes:
            raise ProtocolError(f"{node} can't leave a run that it is not a node of")
        if node in self._left:
            return []
        self._left.add(node)
        return [Finish()] if self._left == self.nodes else []

    def _release(self) -> list[Action]:
        if self._released or not self._gate_open or self._joined != self.nodes:
            return []
        self._released = True
        return [Release()]


def _mean_loss(reports: Collection[Epoch]) -> float:
    """Mean over all samples of an epoch."""
    return sum(report.loss_sum for report in reports) / sum(report.loss_samples for report in reports)
