"""Strategy switch between two training phases.

The module has the rule of the switch, the learning rate, the optimiser's state, and state transfer. A strategy switch
happens during the run: no node restarts, and no gradient is lost or counted twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.schema.arrays import Vector, array_namespace
from services.strategies.base import BytesPerStep, SinglePhaseStrategy
from services.strategies.switching.rules import AnySwitchRule

OptimiserStatePolicy: TypeAlias = Literal["carry", "zero", "reset"]


class ModelTransfer(NamedTuple):
    """State transfer at a strategy switch: vectors to send, and their receivers.

    The vectors can be the parameters, the optimiser's state, or both.
    """

    receivers: Literal["servers", "workers", "none"]
    includes_params: bool = False  # whether parameters are sent
    includes_slots: bool = False  # whether the vectors of the optimiser's state are sent


@dataclass(frozen=True)
class TrainingPhaseSwitch:
    """Strategy switch between two training phases, with the rule that decides its time.

    The class also has the effects of the switch on the learning rate and the optimiser's state.
    """

    first: SinglePhaseStrategy
    second: SinglePhaseStrategy
    rule: AnySwitchRule
    state_policy: OptimiserStatePolicy
    learning_rate_factor: Callable[[int], float]  # of the learning rate, by the number of workers
    fraction_key: tuple[str, ...] | None = None  # path of the fraction's key in the scenario; None: no fraction

    def batch_shares_after_switch(self, worker_count: int) -> tuple[int, ...]:
        """Return each worker's weight in the division of the batch after the strategy switch.

        The weight is 0 if the worker is promoted to server.
        """
        algorithm = self.second.server_algorithm()
        computing = algorithm.count_gradient_workers(worker_count) if algorithm else worker_count
        return (1,) * computing + (0,) * (worker_count - computing)

    def optimiser_after_switch(self, declared_optimiser: AnyOptimiser, worker_count: int) -> AnyOptimiser:
        """Return the optimiser after the strategy switch.

        The optimiser has the learning rate of the second training phase.
        """
        first = self.first.scale_learning_rate(declared_optimiser, worker_count)
        return first.model_copy(update={"rate": first.rate * self.learning_rate_factor(worker_count)})

    def optimiser_state_after_switch(
        self, optimiser: AnyOptimiser, params: Vector, state_before: OptimiserState
    ) -> OptimiserState:
        """Return the optimiser's state after the strategy switch.

        The state depends on `state_policy`, which has one of three values. carry: unchanged. zero: its vectors are zero
        and its count of updates continues (so Adam's bias correction does not start again). reset: the state before the
        first update.
        """
        if self.state_policy == "carry":
            return state_before
        initial = optimiser.init_state(params)
        if self.state_policy == "reset":
            return initial
        zeros = tuple(array_namespace(params).zeros_like(slot) for slot in initial.slots)
        return OptimiserState(state_before.update_count, zeros)

    @property
    def model_transfer_plan(self) -> ModelTransfer:
        """State transfer at the strategy switch: vectors to send, and their receivers.

        The receivers are the nodes that lack these vectors.
        """
        carries = self.state_policy == "carry"
        from_servers, to_servers = (bool(phase.server_algorithm()) for phase in (self.first, self.second))
        if to_servers and not from_servers:
            return ModelTransfer("servers", includes_params=True, includes_slots=carries)
        params, slots = not self.first.describe_worker_exchange().has_equal_replicas, carries and not to_servers
        if not from_servers or not (params or slots):
            return ModelTransfer("none")
        return ModelTransfer("workers", params, slots)

    def max_transfer_bytes(
        self, worker_count: int, parameter_count: int, dtype: str, optimiser_vector_count: int
    ) -> BytesPerStep:
        """Return an upper limit of the bytes that each node sends at a strategy switch.

        The bytes are those of the payloads in the state transfer.

        Args:
            worker_count: number of workers.
            parameter_count: length of the parameter vector.
            dtype: data type of the parameters.
            optimiser_vector_count: number of vectors in the optimiser's state.
        """
        algorithm, transfer = self.first.server_algorithm() or self.second.server_algorithm(), self.model_transfer_plan
        names = [f"{number}" for number in range(worker_count + (algorithm.dedicated_server_count if algorithm else 0))]
        sent = dict.fromkeys(names, 0)
        if algorithm:
            workers = names[:worker_count]
            owners = algorithm.shard_owners(workers, names[worker_count:])
            vectors = transfer.includes_params + optimiser_vector_count * transfer.includes_slots
            for k, (owner, shard) in enumerate(
                zip(owners, algorithm.shard_ranges(worker_count, parameter_count), strict=True)
            ):
                size_bytes = shard.size * np.dtype(dtype).itemsize * vectors
                if transfer.receivers == "workers":
                    sent[owner] += size_bytes * sum(worker != owner for worker in workers)
                if transfer.receivers == "servers" and (sender := find_shard_sender(k, owners, workers)) != owner:
                    sent[sender] += size_bytes
        counts = tuple(sent.values())
        return BytesPerStep(workers=counts[:worker_count], servers=counts[worker_count:])


def find_shard_sender(shard_number: int, shard_owner_names: Sequence[str], worker_names: Sequence[str]) -> str:
    """Return the name of the worker that sends a shard to its owner at a strategy switch.

    The worker sends the vectors of the shard. An owner that is a worker has the shard already and is returned itself.
    For other owners the workers take turns.

    Args:
        shard_number: number of the shard.
        shard_owner_names: names of all shard owners, by shard.
        worker_names: names by rank; the workers have equal replicas.
    """
    owner = shard_owner_names[shard_number]
    return owner if owner in worker_names else worker_names[shard_number % len(worker_names)]
