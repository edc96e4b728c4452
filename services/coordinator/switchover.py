"""How does one strategy give way to another? Asks the rule, gathers what nodes hold, and commits or gives up.

waiting → stopping (somebody has come to the hand-over, the others are called) → loading (all have stopped and agree;
what some lack is on its way) → over: committed when all hold the same, aborted when anything is not as it should be.
Until the commit nothing has changed: after an abort everybody goes on as before. No clock, socket or model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.runtime.control import HandOverDecision, HandOverStage, HandOverState
from services.schema.errors import ProtocolError
from services.strategies.switching.rules import EvaluationPoint, RuleDecision, RuleState
from services.strategies.switching.switch import Switch

Stage: TypeAlias = Literal["waiting", "stopping", "loading", "over"]
Digests: TypeAlias = tuple[str, ...]
Teller: TypeAlias = tuple[str, bool]  # a node, and whether it tells as a server: one node may be a worker and a server


@dataclass(frozen=True)
class Judged:
    """What the rule found at an evaluation point."""

    point: EvaluationPoint
    found: RuleDecision


@dataclass(frozen=True)
class Summon:
    """Call everybody who waits for a hand-over."""


@dataclass(frozen=True)
class Ruled:
    """Answer all who have told, or will tell, what they hold in a round."""

    round: HandOverStage
    ruling: HandOverDecision
    params: Digests = ()  # what everybody agrees on, by range of the vector
    state: Digests = ()


Action: TypeAlias = Judged | Summon | Ruled


@dataclass
class Switchover:
    """The state of one switch; it happens once, or is given up once."""

    switch: Switch
    workers: tuple[str, ...]  # node names by rank
    servers: tuple[str, ...]  # names of the nodes that hold a shard, by shard; workers may be among them
    stage: Stage = "waiting"
    committed: bool = False
    _past: RuleState = field(default_factory=RuleState)
    _held: dict[HandOverStage, dict[Teller, HandOverState]] = field(
        default_factory=lambda: {"stopped": {}, "loaded": {}}
    )

    def observe(self, point: EvaluationPoint, *, may_switch: bool) -> list[Action]:
        """An evaluation point has been reached; the rule is asked whether or not there is anything left to switch."""
        found, self._past = self.switch.rule.decide(point, self._past)
        judged = Judged(point, found)
        return [judged, *self._summons()] if found.fires and may_switch else [judged]

    def told(self, held: HandOverState) -> list[Action]:
        """A node has stopped, or has loaded; it may say so again, and late.

        Raises:
            ProtocolError: it is not a node of this run, or ahead of the others.
        """
        if held.node_name not in (self.servers if held.is_server else self.workers):
            raise ProtocolError(f"{held.node_name} takes no part in this switch")
        teller = held.node_name, held.is_server
        if self.stage == "over" or teller in self._held[held.stage]:
            return []
        if held.stage == "loaded" and self.stage != "loading":
            raise ProtocolError(f"{held.node_name} has loaded while others have not stopped")
        self._held[held.stage][teller] = held
        if held.failure:
            return [*self._summons(), *self.give_up(f"{held.node_name}: {held.failure}")]
        return [*self._summons(), *self._ruled(held.stage)]

    def give_up(self, reason: str) -> list[Action]:
        """Something went wrong before the commit: everybody stays with the strategy before, who comes later too."""
        if self.stage == "over":
            return []
        self.stage, ruling = "over", HandOverDecision("abort", reason)
        return [Ruled("stopped", ruling), Ruled("loaded", ruling)]

    def _summons(self) -> list[Action]:
        if self.stage != "waiting":
            return []
        self.stage = "stopping"
        return [Summon()]

    def _ruled(self, told: HandOverStage) -> list[Action]:
        """What follows when everybody has told."""
        held = self._held[told]
        if len(held) < len(self.workers) + len(self.servers):
            return []
        if reason := next(self._disagreements(held), ""):
            return self.give_up(reason)
        params, state = self._truth(self._held["stopped"])
        lacking = sorted(self._lacking(held, params, state))
        if not lacking:
            self.stage, self.committed = "over", True
            return [Ruled(told, self._ruling("commit"), params, state)]
        if told == "loaded":
            return self.give_up(f"{', '.join(lacking)} does not hold what was sent")
        self.stage = "loading"
        return [Ruled(told, self._ruling("load"), params, state)]

    def _told_by_workers(self, held: Mapping[Teller, HandOverState]) -> list[HandOverState]:
        """By rank."""
        return [held[name, False] for name in self.workers]

    def _told_by_servers(self, held: Mapping[Teller, HandOverState]) -> list[HandOverState]:
        """By shard."""
        return [held[name, True] for name in self.servers]

    @property
    def _from_servers(self) -> bool:
        """Whether servers hold the model before the switch."""
        return self.switch.first.server_algorithm() is not None

    def _disagreements(self, held: Mapping[Teller, HandOverState]) -> Iterator[str]:
        """Why replicas or servers can't be one model."""
        workers, servers = self._told_by_workers(held), self._told_by_servers(held)
        if (
            self.switch.first.phase_traits().is_synchronous
            and len({(each.next_step, each.params_digests, each.state_digests) for each in workers}) > 1
        ):
            yield "replicas differ: " + ", ".join(f"{each.node_name} at step {each.next_step}" for each in workers)
        if self._from_servers and len({(each.version, each.samples) for each in servers}) > 1:
            yield "servers differ: " + ", ".join(f"{each.node_name} at version {each.version}" for each in servers)
        in_lockstep = self._from_servers and self.switch.first.phase_traits().is_synchronous
        if in_lockstep and workers[0].params_digests != self._truth(self._held["stopped"])[0]:
            yield "workers and servers hold different parameters"

    def _truth(self, held: Mapping[Teller, HandOverState]) -> tuple[Digests, Digests]:
        """What the model is at the switch, told by those who hold it: servers, else any replica."""
        if not self._from_servers:
            carrier, *_ = self._told_by_workers(held)
            return carrier.params_digests, carrier.state_digests
        servers = self._told_by_servers(held)
        return tuple(each.params_digests[0] for each in servers), tuple(each.state_digests[0] for each in servers)

    def _lacking(self, held: Mapping[Teller, HandOverState], params: Digests, state: Digests) -> Iterator[str]:
        """Who must have something and does not."""
        moves = self.switch.hand_over_transfer
        takers = {"servers": self._told_by_servers(held), "workers": self._told_by_workers(held), "none": []}
        for number, each in enumerate(takers[moves.receivers]):
            own = slice(number, number + 1) if moves.receivers == "servers" else slice(None)
            if (moves.includes_params and each.params_digests != params[own]) or (
                moves.includes_slots and each.state_digests != state[own]
            ):
                yield each.node_name

    def _ruling(self, verb: Literal["load", "commit"]) -> HandOverDecision:
        """What the strategy after begins with: beyond the step that the fastest worker has done.

        Workers that were not in lockstep skip the steps in between, and never see their shares of these batches: a step
        names a batch and messages for all. Budgets count samples in updates, so others are seen instead.
        """
        held = self._held["stopped"]
        workers = self._told_by_workers(held)
        source = self._told_by_servers(held)[0] if self._from_servers else workers[0]
        step = max(each.next_step for each in workers)
        return HandOverDecision(verb, "", step, source.version, source.samples, source.updates)
