"""Replays gradients that are pushed: computes each from what its worker had read, and makes the servers' updates."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from replay.base import Arrivals, Model, Name, Row, by_version, gradient, name, reads
from services.compressors import bytes_to_vector, payload_to_bytes
from services.learning.datasets import TrainTestData
from services.learning.layout import VectorRange
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.parameter_server.update_rules import GradientUpdateRule, WorkerContribution
from services.plan import Plan
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError
from services.strategies import ParameterServer


class _Computed(NamedTuple):
    """A push as it left its worker."""

    gradient: HostArray  # the whole vector
    read: tuple[HostArray, ...]  # the parameters that it was computed from, by shard


@dataclass
class _Shard:
    """One shard as it is replayed; versions are kept as long as somebody has yet to read them."""

    rule: GradientUpdateRule
    updates: list[list[Row]]  # a list of rows per update, those to come
    reads: dict[Name, int]  # the version that a push was computed from
    version: int
    versions: dict[int, HostArray] = field(init=False)

    def __post_init__(self) -> None:
        self.versions = {self.version: self.rule.params}

    def made(self, contributions: Sequence[WorkerContribution]) -> None:
        """Make the next update; forget versions that nobody reads any more."""
        self.rule.update(contributions)
        self.version += 1
        self.versions[self.version] = self.rule.params
        del self.updates[0]
        oldest = min(self.reads.values(), default=self.version)
        self.versions = {version: held for version, held in self.versions.items() if version >= oldest}


def replay(
    plan: Plan,
    strategy: ParameterServer,
    optimiser: AnyOptimiser,
    data: TrainTestData,
    arrivals: Sequence[Arrivals],
    begins: Model,
) -> Model:
    """What the servers hold at the end that begin with `begins`; `arrivals` are by shard.

    Raises:
        ProtocolError: the logs contradict themselves.
    """
    return _Replay.of(plan, strategy, optimiser, data, arrivals, begins).run()


@dataclass
class _Replay:
    plan: Plan
    strategy: ParameterServer
    data: TrainTestData
    shards: list[_Shard]
    uses: Counter[Name]  # updates, over all shards, that a push has yet to go into
    _computed: dict[Name, _Computed] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: Plan,
        strategy: ParameterServer,
        optimiser: AnyOptimiser,
        data: TrainTestData,
        arrivals: Sequence[Arrivals],
        begins: Model,
    ) -> "_Replay":
        uses = Counter(name(row) for told in arrivals for row in told.updates)
        shards = [
            _Shard(
                _rule(plan, strategy, optimiser, held, begins),
                by_version(told.updates),
                {push: version for push, version in reads(told) if push in uses},
                begins.version,
            )
            for held, told in zip(plan.shards, arrivals, strict=True)
        ]
        return cls(plan, strategy, data, shards, uses)

    def run(self) -> Model:
        while any(shard.updates for shard in self.shards):
            ready = [number for number, shard in enumerate(self.shards) if shard.updates and self._is_ready(shard)]
            if not ready:
                raise ProtocolError("the logs name versions that can't have existed yet")
            for number in ready:
                self._update(number)
        first, *_ = rules = [shard.rule for shard in self.shards]
        slots = zip(*(rule.state.slots for rule in rules), strict=True)
        state = OptimiserState(first.state.update_count, tuple(map(np.concatenate, slots)))
        return Model(np.concatenate([rule.params for rule in rules]), state, self.shards[0].version)

    def _is_ready(self, shard: _Shard) -> bool:
        """Whether all gradients of its next update can be computed, or have been."""
        return all(self._can_be_read(name(row)) for row in shard.updates[0])

    def _can_be_read(self, push: Name) -> bool:
        return push in self._computed or all(shard.reads[push] in shard.versions for shard in self.shards)

    def _update(self, number: int) -> None:
        rows = self.shards[number].updates[0]
        self.shards[number].made([self._contribution(number, row) for row in rows])
        for push in map(name, rows):
            self.uses[push] -= 1
            if not self.uses[push]:
                del self._computed[push]

    def _compute(self, push: Name) -> _Computed:
        worker, step = push
        read = tuple(shard.versions[shard.reads.pop(push)] for shard in self.shards)
        computing = self.strategy.server_algorithm().gradient_worker_count(self.plan.workers)
        shares = (1,) * computing + (0,) * (self.plan.workers - computing)
        mean, _ = gradient(self.plan, self.data, np.concatenate(read), worker, step, shares)
        return _Computed(mean, read)

    def _contribution(self, number: int, row: Row) -> WorkerContribution:
        """What arrived of a push: through the number format and back."""
        push, shard = name(row), self.plan.shards[number]
        if push not in self._computed:
            self._computed[push] = self._compute(push)
        computed = self._computed[push]
        payload, _ = self.strategy.compress.compress(shard.view(computed.gradient), None)
        vector = bytes_to_vector(self.strategy.compress, payload_to_bytes(payload), shard.size, self.plan.dtype)
        return WorkerContribution(row["worker"], row["samples"], row["staleness"], vector, computed.read[number])


def _rule(
    plan: Plan, strategy: ParameterServer, optimiser: AnyOptimiser, held: VectorRange, begins: Model
) -> GradientUpdateRule:
    """A server's rule, with its range of what the part begins with."""
    rule = strategy.server_algorithm().make_update_rule(optimiser, held.view(begins.params), plan.workers)
    rule.state = OptimiserState(begins.state.update_count, tuple(held.view(slot) for slot in begins.state.slots))
    return rule
