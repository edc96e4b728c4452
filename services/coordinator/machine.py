"""How does a run begin, go on and end? Membership, the gate, epochs, the stop rule; no clock, socket or model."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import TypeAlias

from services.coordinator import switchover
from services.coordinator.switchover import Judged, Summon, Switchover
from services.runtime.control import EpochReport, HandOverState
from services.scenario.target import Target
from services.schema.errors import ProtocolError, Refused
from services.strategies.switching.rules import EvaluationPoint, LossSource

GO_ON = ""  # a verdict without a reason to stop


@dataclass(frozen=True)
class Release:
    """Everybody may start."""


@dataclass(frozen=True)
class Evaluate:
    """Measure the quality of the parameters that came with `epoch`, then tell `evaluated`."""

    epoch: EpochReport


@dataclass(frozen=True)
class Report:
    """All samples of an epoch, or as many, have been used: their mean training loss is known."""

    epoch: EpochReport
    loss: float


@dataclass(frozen=True)
class Answer:
    """The worker that finished the epoch may go on (no reason) or must stop (with a reason)."""

    node: str
    epoch: int
    reason: str


@dataclass(frozen=True)
class Prepare:
    """The worker that finished the epoch hands over to another strategy before its next step."""

    node: str
    epoch: int


@dataclass(frozen=True)
class Stop:
    """Tell everybody who waits for the end."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """Everybody has left."""


@dataclass(frozen=True)
class Dismiss:
    """All workers have left: who waits for a switch waits for nothing."""


Action: TypeAlias = Release | Evaluate | Report | Answer | Prepare | Stop | Finish | Dismiss | switchover.Action


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
    switch: Switchover | None = None  # where one strategy gives way to another
    reason: str = GO_ON
    diverged: bool = False
    _joined: set[str] = field(default_factory=set)
    _left: set[str] = field(default_factory=set)
    _gate_open: bool = False
    _released: bool = False
    _finished: dict[int, dict[str, EpochReport]] = field(default_factory=dict)
    _evaluated: int = 0
    _validation: float = nan  # loss of the epoch that was evaluated last
    _concluded: int = 0  # epochs of which it is known, in lockstep, how to go on
    _prepares: int = 0  # the epoch after which another strategy takes over
    _pass: list[EpochReport] = field(default_factory=list)  # reports since the last pass over the data
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

    def epoch_ended(self, epoch: EpochReport) -> list[Action]:
        """A worker has finished an epoch; it may say so again and is answered once.

        Raises:
            ProtocolError: there is no such worker or no such epoch.
        """
        # A fast worker does more than its share of the budget, and what comes after it counts on from there.
        most = self.epochs if self.lockstep and not self._switched else inf
        if epoch.node_name not in self.workers or not 1 <= epoch.epoch <= most:
            raise ProtocolError(f"{epoch.node_name} can't finish epoch {epoch.epoch}")
        reports = self._finished.setdefault(epoch.epoch, {})
        if epoch.node_name in reports:
            return []
        reports[epoch.node_name] = replace(epoch, parameters=b"")  # those of every epoch would fill the memory
        actions: list[Action] = []
        if epoch.node_name == self.workers[0]:
            actions.append(Evaluate(epoch))
        elif not self.lockstep or epoch.epoch <= self._concluded:
            actions.append(self._answer(epoch.node_name, epoch.epoch))
        if self.lockstep and self._all_of(reports):
            actions.append(Report(reports[self.workers[0]], _mean_loss(reports.values())))
            actions.extend(self._conclude(epoch.epoch))
        if not self.lockstep:
            actions.extend(self._pass_over(replace(epoch, parameters=b"")))
        return actions

    def _pass_over(self, epoch: EpochReport) -> list[Action]:
        """Out of lockstep fast workers do more epochs: as many reports as there are workers make one pass."""
        self._pass.append(epoch)
        if len(self._pass) < len(self._computing):
            return []
        done, self._pass, self._passes = self._pass, [], self._passes + 1
        report = Report(replace(epoch, epoch=self._passes), _mean_loss(done))
        if not self._watches("train"):
            return [report]
        return [report, *self._observe(EvaluationPoint(self._passes, epoch.steps, train_loss_sums=_tallies(done)))]

    def evaluated(self, epoch: EpochReport, metrics: dict[str, float]) -> list[Action]:
        """The quality after an epoch is known."""
        self._evaluated = epoch.epoch
        self._validation = metrics.get("loss", nan)
        stops = self.target is not None and self.target.reached(metrics)
        actions: list[Action] = []
        if stops and not self.reason:
            self.reason = "target reached"
            actions.append(Stop(self.reason))
        if self.lockstep:
            return [*actions, *self._conclude(epoch.epoch)]
        if self._watches("validation"):
            actions += self._observe(EvaluationPoint(epoch.epoch, epoch.steps, self._validation))
        return [*actions, self._answer(epoch.node_name, epoch.epoch)]

    def concluded(self, epoch: int, step: int, metrics: dict[str, float]) -> list[Action]:
        """Everybody has left, and the quality of what servers hold is known: the last point that a rule looks at.

        A pass over the data that was begun ends here.
        """
        if self._watches("validation"):
            return self._observe(EvaluationPoint(epoch, step, metrics.get("loss", nan)))
        if self._watches("train") and self._pass:
            return self._observe(EvaluationPoint(self._passes + 1, step, train_loss_sums=_tallies(self._pass)))
        return []

    @property
    def _computing(self) -> tuple[str, ...]:
        """The workers that are left: who has been promoted at a switch reports no more epochs."""
        if self.switch is None or not self.switch.committed:
            return self.workers
        weights = self.switch.switch.worker_weights(len(self.workers))
        return tuple(worker for worker, weight in zip(self.workers, weights, strict=True) if weight)

    def _all_of(self, reports: Collection[str]) -> bool:
        """Whether everybody who computes has reported an epoch."""
        return set(self._computing) <= set(reports)

    def _watches(self, source: LossSource) -> bool:
        """Whether a rule looks at this loss."""
        return self.switch is not None and self.switch.switch.rule.loss_source == source

    def _answer(self, node: str, number: int) -> Answer | Prepare:
        return Prepare(node, number) if number == self._prepares else Answer(node, number, self.reason)

    def _conclude(self, number: int) -> list[Action]:
        """Say how to go on after an epoch in lockstep, once the losses are known that a rule looks at."""
        reports = self._finished[number]
        awaits_losses = self._watches("train") and not self._all_of(reports)
        if self._evaluated < number or self._concluded >= number or awaits_losses:
            return []
        self._concluded = number
        steps = reports[self.workers[0]].steps
        actions = self._observe(EvaluationPoint(number, steps, self._validation, _tallies(reports.values())))
        self._prepares = number if Summon() in actions else 0
        return [*actions, *(self._answer(node, number) for node in self.workers if node in reports)]

    def _observe(self, point: EvaluationPoint) -> list[Action]:
        """Tell the rule; a switch is for those who have something left to do."""
        if self.switch is None:
            return []
        over = self.reason or self._left or (self.lockstep and point.number >= self.epochs)
        actions: list[Action] = [*self.switch.observe(point, may_switch=not over)]
        judged = [action.found for action in actions if isinstance(action, Judged)]
        if any(found.gives_up for found in judged) and not self.reason:
            self.diverged, self.reason = True, f"{judged[0].skipped} losses were not finite"
            actions.append(Stop(self.reason))
        return actions

    def handed_over(self, held: HandOverState) -> list[Action]:
        """A node has stopped for a switch, or has loaded what it needs after it.

        Raises:
            ProtocolError: nothing is switched in this run, or the node is ahead of the others.
        """
        if self.switch is None:
            raise ProtocolError(f"{held.node_name} hands over in a run that switches nothing")
        actions = self.switch.told(held)
        if self.switch.committed:
            self.lockstep = self.switch.switch.second.phase_traits().is_synchronous
            self._passes = max(self._passes, self._evaluated)  # epochs count on, whoever counts them
        return [*actions]

    @property
    def _switched(self) -> bool:
        return self.switch is not None and self.switch.committed

    def switch_failed(self, reason: str) -> list[Action]:
        """Time has run out for a switch, if it is not over yet."""
        return [*self.switch.give_up(reason)] if self.switch else []

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
        actions = self.switch_failed(f"{node} has left") if node in self.workers else []
        if self.switch and node in self.workers and self._left.issuperset(self.workers):
            actions.append(Dismiss())
        return [*actions, Finish()] if self._left == self.nodes else actions

    def _release(self) -> list[Action]:
        if self._released or not self._gate_open or self._joined != self.nodes:
            return []
        self._released = True
        return [Release()]


def _tallies(reports: Collection[EpochReport]) -> tuple[tuple[float, int], ...]:
    """Sum of losses and samples of every worker."""
    return tuple((report.loss_sum, report.loss_samples) for report in reports)


def _mean_loss(reports: Collection[EpochReport]) -> float:
    """Mean over all samples of an epoch."""
    return sum(report.loss_sum for report in reports) / sum(report.loss_samples for report in reports)
