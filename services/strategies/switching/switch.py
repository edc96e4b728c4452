"""The switch from one training phase to the next: its rule, the learning rate, the optimiser's state, and the transfer.

The switch happens in place: no node restarts, and no gradient is lost or counted twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.schema.arrays import Vector, namespace
from services.strategies.base import BytesPerStep, PhaseStrategy
from services.strategies.switching.rules import AnySwitchRule

StatePolicy: TypeAlias = Literal["carry", "zero", "reset"]


class Transfer(NamedTuple):
    """What nodes send each other in a hand-over."""

    receivers: Literal["servers", "workers", "none"]
    params: bool = False
    slots: bool = False  # of the optimiser's state


@dataclass(frozen=True)
class Switch:
    """The switch from the first phase to the second."""

    first: PhaseStrategy
    second: PhaseStrategy
    rule: AnySwitchRule
    state_policy: StatePolicy  # for the optimiser's state
    rate_factor: Callable[[int], float]  # of the learning rate, by the number of workers
    fraction_key: tuple[str, ...] | None = None  # path of the key that holds the fraction; None: no fraction declared

    def worker_weights(self, workers: int) -> tuple[int, ...]:
        """Return the weight of each worker's share of a batch after the switch; 0 for a worker that only serves."""
        algorithm = self.second.server_algorithm()
        computing = algorithm.computing_workers(workers) if algorithm else workers
        return (1,) * computing + (0,) * (workers - computing)

    def optimiser(self, declared: AnyOptimiser, workers: int) -> AnyOptimiser:
        """Return the optimiser of one update after the switch."""
        first = self.first.optimiser(declared, workers)
        return first.model_copy(update={"rate": first.rate * self.rate_factor(workers)})

    def optimiser_state(self, optimiser: AnyOptimiser, params: Vector, state: OptimiserState) -> OptimiserState:
        """Return the optimiser's state after the switch.

        carry: unchanged. zero: its vectors are zero and its count of updates continues (Adam's bias correction is
        over). reset: as before the first update.
        """
        if self.state_policy == "carry":
            return state
        initial = optimiser.init(params)
        if self.state_policy == "reset":
            return initial
        return OptimiserState(state.update_count, tuple(namespace(params).zeros_like(slot) for slot in initial.slots))

    @property
    def transfer(self) -> Transfer:
        """What has to be sent; what a node holds already is not sent again."""
        carries = self.state_policy == "carry"
        from_servers, to_servers = (bool(phase.server_algorithm()) for phase in (self.first, self.second))
        if to_servers and not from_servers:
            return Transfer("servers", params=True, slots=carries)
        params, slots = not self.first.traits().is_synchronous, carries and not to_servers
        if not from_servers or not (params or slots):
            return Transfer("none")
        return Transfer("workers", params, slots)

    def hand_over_bytes(self, workers: int, entries: int, dtype: str, slots: int) -> BytesPerStep:
        """Return the payload bytes of a hand-over in which everything that may have to be sent is sent.

        Args:
            workers: number of workers.
            entries: of the parameter vector.
            dtype: of the parameters.
            slots: vectors in the optimiser's state.
        """
        algorithm, transfer = self.first.server_algorithm() or self.second.server_algorithm(), self.transfer
        names = [f"{number}" for number in range(workers + (algorithm.server_count if algorithm else 0))]
        sent = dict.fromkeys(names, 0)
        if algorithm:
            owners = algorithm.shard_owners(names[:workers], names[workers:])
            vectors = transfer.params + slots * transfer.slots
            for number, (owner, shard) in enumerate(zip(owners, algorithm.shards(workers, entries), strict=True)):
                size_bytes = shard.size * np.dtype(dtype).itemsize * vectors
                if transfer.receivers == "workers":
                    sent[owner] += size_bytes * sum(worker != owner for worker in names[:workers])
                if (
                    transfer.receivers == "servers"
                    and (sender := shard_sender(number, owners, names[:workers])) != owner
                ):
                    sent[sender] += size_bytes
        counts = tuple(sent.values())
        return BytesPerStep(workers=counts[:workers], servers=counts[workers:])


def shard_sender(shard: int, owners: Sequence[str], workers: Sequence[str]) -> str:
    """Return the worker that sends an owner its shard: the owner if it is a worker, else workers take turns.

    Args:
        shard: its number.
        owners: names of all shard owners, by shard.
        workers: names by rank; their replicas are equal.
    """
    return owners[shard] if owners[shard] in workers else workers[shard % len(workers)]
