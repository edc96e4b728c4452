"""Results of asynchronous averaging in every order of averages that the logs of a run allow.

The order of averages is not logged. But each gradient depends only on its worker, its step and the parameters that it
was computed with, and pairs of AD-PSGD only on the seed. So a short run has few possible results. This module computes
them from the definition of the strategies, without messages; the result of the run must have the bits of one of them.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np

from replay.base import gradient
from services.learning.datasets import TrainTestData
from services.learning.optimisers import OptimiserState
from services.plan import TrainingPlan
from services.schema.arrays import HostArray
from services.strategies.async_averaging.pairing import choose_passive_rank, list_active_ranks, list_passive_ranks

MAX_STATES = 50_000  # after as many steps and averages; a test with more would take minutes


@dataclass(frozen=True)
class Replica:
    """State of one worker between two steps or averages."""

    params: HostArray
    optimiser_state: OptimiserState
    steps: int = 0  # finished
    averages: int = 0  # of a passive worker: with active workers so far
    # Of a passive worker that computes a gradient: the parameters it uses, and the averages before. None: it waits.
    basis: HostArray | None = None
    averages_at_basis: int = 0

    @property
    def key(self) -> str:
        """Text that is equal for equal replicas."""
        vectors = [self.params, *self.optimiser_state.slots, *([] if self.basis is None else [self.basis])]
        digests = [hashlib.sha256(np.ascontiguousarray(vector).tobytes()).hexdigest() for vector in vectors]
        return f"{digests} {self.steps} {self.averages} {self.averages_at_basis}"


Replicas: TypeAlias = tuple[Replica, ...]  # by rank


@dataclass(frozen=True)
class AverageOrders(ABC):
    """Orders of the averages and updates of a run."""

    plan: TrainingPlan
    steps: Sequence[int]  # of each worker, by rank

    def result_digests(self) -> set[str]:
        """Return the digests of the mean over workers in all orders that agree with the logs."""
        params = self.plan.model.init_parameters(self._data.task, self.plan.seed, self.plan.dtype)
        replica = Replica(params, self.plan.optimiser.init_state(params), basis=params)
        open_states, digests, seen_keys = [(replica,) * self.plan.workers], set[str](), set[str]()
        while open_states:
            replicas = open_states.pop()
            if all(replica.steps == count for replica, count in zip(replicas, self.steps, strict=True)):
                digests.add(_digest_of_mean(replicas))
            for following in self.next_replicas(replicas):
                key = " ".join(replica.key for replica in following)
                if key not in seen_keys:  # many orders lead to equal states
                    seen_keys.add(key)
                    open_states.append(following)
            assert len(seen_keys) < MAX_STATES, "too many orders; use fewer steps"
        return digests

    @abstractmethod
    def next_replicas(self, replicas: Replicas) -> Iterator[Replicas]:
        """Yield the replicas after each event that may come next."""

    def update(self, replicas: Replicas, rank: int, params: HostArray, basis: HostArray) -> Replica:
        """Return a replica after an update of `params` with the gradient at `basis`."""
        replica, updater = replicas[rank], self.plan.make_parameter_updater(self.plan.optimiser)
        mean, _ = gradient(self.plan, self._data, basis, rank, replica.steps)
        updated, state = updater.update_params(params, mean, replica.optimiser_state, 0)
        return replace(replica, params=updated, optimiser_state=state, steps=replica.steps + 1, basis=None)

    @cached_property
    def _data(self) -> TrainTestData:
        return self.plan.dataset.load(self.plan.dtype)


@dataclass(frozen=True)
class PairOrders(AverageOrders):
    """Orders of AD-PSGD: averages of active with passive workers, and updates of passive workers."""

    staleness: Sequence[Sequence[float]]  # of the gradient of each step, by rank

    def next_replicas(self, replicas: Replicas) -> Iterator[Replicas]:
        for rank in list_active_ranks(len(replicas)):
            if replicas[rank].steps < self.steps[rank]:
                yield self._average_and_update(replicas, rank)
        for rank in list_passive_ranks(len(replicas)):
            replica = replicas[rank]
            if replica.steps == self.steps[rank]:
                continue
            if replica.basis is None:
                reading = replace(replica, basis=replica.params, averages_at_basis=replica.averages)
                yield _with(replicas, rank, reading)
            elif replica.averages - replica.averages_at_basis == self.staleness[rank][replica.steps]:
                yield _with(replicas, rank, self.update(replicas, rank, replica.params, replica.basis))

    def _average_and_update(self, replicas: Replicas, rank: int) -> Replicas:
        """Return the replicas after a step of an active worker."""
        active = replicas[rank]
        passive_rank = choose_passive_rank(self.plan.seed, rank, active.steps, len(replicas))
        passive = replicas[passive_rank]
        mean = (active.params + passive.params) / 2
        after = _with(replicas, rank, self.update(replicas, rank, mean, active.params))
        return _with(after, passive_rank, replace(passive, params=mean, averages=passive.averages + 1))


@dataclass(frozen=True)
class GroupOrders(AverageOrders):
    """Orders of partial all-reduce with groups of two; a worker has no group only if all others have left."""

    def next_replicas(self, replicas: Replicas) -> Iterator[Replicas]:
        ranks = [rank for rank, replica in enumerate(replicas) if replica.steps < self.steps[rank]]
        if len(ranks) == 1:
            yield _with(replicas, ranks[0], self._update_alone(replicas, ranks[0]))
        for pair in combinations(ranks, 2):
            members = [self._update_alone(replicas, rank) for rank in pair]
            mean = members[0].params / 2 + members[1].params / 2
            after = replicas
            for rank, member in zip(pair, members, strict=True):
                after = _with(after, rank, replace(member, params=mean))
            yield after

    def _update_alone(self, replicas: Replicas, rank: int) -> Replica:
        params = replicas[rank].params
        return self.update(replicas, rank, params, params)


def _with(replicas: Replicas, rank: int, replica: Replica) -> Replicas:
    return (*replicas[:rank], replica, *replicas[rank + 1 :])


def _digest_of_mean(replicas: Replicas) -> str:
    total = np.sum([replica.params for replica in replicas], axis=0, dtype=np.float64)
    return hashlib.sha256((total / len(replicas)).astype(replicas[0].params.dtype).tobytes()).hexdigest()
