"""Replay of pushed gradients: compute each from the parameters its worker had read, and apply the servers' updates."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from replay.base import Model, PushId, Row, ShardArrivals, gradient, push_id, rows_by_version, versions_read
from services.compressors import bytes_to_vector, fit_to_range, payload_to_bytes
from services.learning.datasets import TrainTestData
from services.learning.layout import VectorRange
from services.learning.optimisers import OptimiserState
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.update_rules import GradientUpdateRule, WorkerContribution
from services.plan import Plan
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError
from services.strategies import ParameterServer


class _ComputedPush(NamedTuple):
    """Gradient of one push, before compression."""

    gradient: HostArray  # the whole vector
    read: tuple[HostArray, ...]  # the parameters that it was computed from, by shard


@dataclass
class _ReplayedShard:
    """Replayed state of one shard; a version is kept until all pushes computed from it are replayed."""

    rule: GradientUpdateRule
    updates: list[list[Row]]  # rows of each update that is not replayed yet
    reads: dict[PushId, int]  # the version that a push was computed from
    version: int
    samples: int  # used for this version
    versions: dict[int, HostArray] = field(init=False)

    def __post_init__(self) -> None:
        self.versions = {self.version: self.rule.params}

    def apply_update(self, contributions: Sequence[WorkerContribution]) -> None:
        """Apply the next update; discard versions that no later push was computed from."""
        self.rule.update_shard_params(contributions, self.samples)
        self.version += 1
        self.samples += sum(contribution.samples for contribution in contributions)
        self.versions[self.version] = self.rule.params
        del self.updates[0]
        oldest = min(self.reads.values(), default=self.version)
        self.versions = {version: params for version, params in self.versions.items() if version >= oldest}


def replay(
    plan: Plan,
    strategy: ParameterServer,
    updater: ParameterUpdater,
    data: TrainTestData,
    arrivals: Sequence[ShardArrivals],
    start_model: Model,
) -> Model:
    """Return the final model of servers that start with `start_model`; `arrivals` has one item per shard.

    Raises:
        ProtocolError: the logs contradict themselves.
    """
    return _PushReplay.of(plan, strategy, updater, data, arrivals, start_model).run()


@dataclass
class _PushReplay:
    plan: Plan
    strategy: ParameterServer
    data: TrainTestData
    shards: list[_ReplayedShard]
    pending_uses: Counter[PushId]  # by push: updates, over all shards, that use it and are not replayed yet
    _computed: dict[PushId, _ComputedPush] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: Plan,
        strategy: ParameterServer,
        updater: ParameterUpdater,
        data: TrainTestData,
        arrivals: Sequence[ShardArrivals],
        start_model: Model,
    ) -> "_PushReplay":
        pending_uses = Counter(push_id(row) for shard in arrivals for row in shard.updates)
        shards = [
            _ReplayedShard(
                _update_rule(plan, strategy, updater, shard_range, start_model),
                rows_by_version(shard.updates),
                {push: version for push, version in versions_read(shard) if push in pending_uses},
                start_model.version,
                start_model.samples,
            )
            for shard_range, shard in zip(plan.shards, arrivals, strict=True)
        ]
        return cls(plan, strategy, data, shards, pending_uses)

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
        params, counter = np.concatenate([rule.params for rule in rules]), self.shards[0]
        return Model(params, state, counter.version, counter.samples)

    def _is_ready(self, shard: _ReplayedShard) -> bool:
        """Return whether all gradients of the shard's next update have been computed or can be computed now."""
        return all(self._can_be_read(push_id(row)) for row in shard.updates[0])

    def _can_be_read(self, push: PushId) -> bool:
        return push in self._computed or all(shard.reads[push] in shard.versions for shard in self.shards)

    def _update(self, number: int) -> None:
        rows = self.shards[number].updates[0]
        self.shards[number].apply_update([self._contribution(number, row) for row in rows])
        for push in map(push_id, rows):
            self.pending_uses[push] -= 1
            if not self.pending_uses[push]:
                del self._computed[push]

    def _compute(self, push: PushId) -> _ComputedPush:
        worker, step = push
        read = tuple(shard.versions[shard.reads.pop(push)] for shard in self.shards)
        computing = self.strategy.server_algorithm().count_gradient_workers(self.plan.workers)
        shares = (1,) * computing + (0,) * (self.plan.workers - computing)
        mean, _ = gradient(self.plan, self.data, np.concatenate(read), worker, step, shares)
        return _ComputedPush(mean, read)

    def _contribution(self, number: int, row: Row) -> WorkerContribution:
        """Return the part of a push that the server received: compressed and decompressed."""
        push, shard = push_id(row), self.plan.shards[number]
        if push not in self._computed:
            self._computed[push] = self._compute(push)
        computed = self._computed[push]
        compressor = fit_to_range(self.strategy.compress, *shard)
        payload, _ = compressor.compress(shard.view(computed.gradient), None)
        vector = bytes_to_vector(compressor, payload_to_bytes(payload), shard.size, self.plan.dtype)
        return WorkerContribution(row["worker"], row["samples"], row["staleness"], vector, computed.read[number])


def _update_rule(
    plan: Plan, strategy: ParameterServer, updater: ParameterUpdater, shard_range: VectorRange, start_model: Model
) -> GradientUpdateRule:
    """Return the update rule of a server, with the server's range of the start model."""
    rule = strategy.server_algorithm().make_update_rule(updater, shard_range.view(start_model.params), plan.workers)
    rule.state = OptimiserState(
        start_model.state.update_count, tuple(shard_range.view(slot) for slot in start_model.state.slots)
    )
    return rule
