"""How does one strategy give way to another? Asks the rule, gathers what nodes hold, and commits or gives up.

waiting → stopping (somebody has come to the hand-over, the others are called) → loading (all have stopped and agree;
what some lack is on its way) → over: committed when all hold the same, aborted when anything is not as it should be.
Until the commit nothing has changed: after an abort everybody goes on as before. No clock, socket or model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.control import Held, Round, Ruling
from services.errors import ProtocolError
from services.rules import Judgement, Past, Point
from services.strategies import Switching

Stage: TypeAlias = Literal["waiting", "stopping", "loading", "over"]
Digests: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """What the rule found at an evaluation point."""

    point: Point
    found: Judgement


@dataclass(frozen=True)
class Summon:
    """Call everybody who waits for a hand-over."""


@dataclass(frozen=True)
class Ruled:
    """Answer all who have told, or will tell, what they hold in a round."""

    round: Round
    ruling: Ruling
    params: Digests = ()  # what everybody agrees on, by range of the vector
    state: Digests = ()


Action: TypeAlias = Judged | Summon | Ruled


@dataclass
class Switchover:
    """The state of one switch; it happens once, or is given up once."""

    strategy: Switching
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    stage: Stage = "waiting"
    committed: bool = False
    _past: Past = field(default_factory=Past)
    _held: dict[Round, dict[str, Held]] = field(default_factory=lambda: {"stopped": {}, "loaded": {}})

    def observe(self, point: Point, *, may_switch: bool) -> list[Action]:
        """An evaluation point has been reached; the rule is asked whether or not there is anything left to switch."""
        found, self._past = self.strategy.rule.observe(point, self._past)
        judged = Judged(point, found)
        return [judged, *self._summons()] if found.fires and may_switch else [judged]

    def told(self, held: Held) -> list[Action]:
        """A node has stopped, or has loaded; it may say so again, and late.

        Raises:
            ProtocolError: it is not a node of this run, or ahead of the others.
        """
        if held.node not in {*self.workers, *self.servers}:
            raise ProtocolError(f"{held.node} takes no part in this switch")
        if self.stage == "over" or held.node in self._held[held.round]:
            return []
        if held.round == "loaded" and self.stage != "loading":
            raise ProtocolError(f"{held.node} has loaded while others have not stopped")
        self._held[held.round][held.node] = held
        if held.failure:
            return [*self._summons(), *self.give_up(f"{held.node}: {held.failure}")]
        return [*self._summons(), *self._ruled(held.round)]

    def give_up(self, reason: str) -> list[Action]:
        """Something went wrong before the commit: everybody stays with the strategy before, who comes later too."""
        if self.stage == "over":
            return []
        self.stage, ruling = "over", Ruling("abort", reason)
        return [Ruled("stopped", ruling), Ruled("loaded", ruling)]

    def _summons(self) -> list[Action]:
        if self.stage != "waiting":
            return []
        self.stage = "stopping"
        return [Summon()]

    def _ruled(self, told: Round) -> list[Action]:
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

    def _disagreements(self, held: Mapping[str, Held]) -> Iterator[str]:
        """Why replicas or servers can't be one model."""
        workers = [held[name] for name in self.workers]
        servers = [held[name] for name in self.servers]
        if self.strategy.first.synchronous and len({(each.step, each.params, each.state) for each in workers}) > 1:
            yield "replicas differ: " + ", ".join(f"{each.node} at step {each.step}" for each in workers)
        if self.strategy.first.server_count and len({(each.version, each.samples) for each in servers}) > 1:
            yield "servers differ: " + ", ".join(f"{each.node} at version {each.version}" for each in servers)
        in_lockstep = self.strategy.first.server_count and self.strategy.first.synchronous
        if in_lockstep and workers[0].params != self._truth(self._held["stopped"])[0]:
            yield "workers and servers hold different parameters"

    def _truth(self, held: Mapping[str, Held]) -> tuple[Digests, Digests]:
        """What the model is at the switch, told by those who hold it: servers, else any replica."""
        if not self.strategy.first.server_count:
            return held[self.workers[0]].params, held[self.workers[0]].state
        servers = [held[name] for name in self.servers]
        return tuple(each.params[0] for each in servers), tuple(each.state[0] for each in servers)

    def _lacking(self, held: Mapping[str, Held], params: Digests, state: Digests) -> Iterator[str]:
        """Who must have something and does not."""
        moves = self.strategy.moves
        names = {"servers": self.servers, "workers": self.workers, "nobody": ()}[moves.to]
        for rank, name in enumerate(names):
            own = slice(rank, rank + 1) if moves.to == "servers" else slice(None)
            if (moves.params and held[name].params != params[own]) or (moves.slots and held[name].state != state[own]):
                yield name

    def _ruling(self, verb: Literal["load", "commit"]) -> Ruling:
        """What the strategy after begins with: beyond the step that the fastest worker has done."""
        held = self._held["stopped"]
        source = held[self.servers[0] if self.strategy.first.server_count else self.workers[0]]
        step = max(held[name].step for name in self.workers)
        return Ruling(verb, "", step, source.version, source.samples, source.updates)
