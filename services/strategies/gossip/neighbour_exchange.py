"""Exchange of vectors with neighbours: every worker sends its vector to some ranks, and receives theirs."""

import asyncio
from collections.abc import Sequence

import numpy as np

from services.collectives.data_exchange.blocks import receive_block, send_block
from services.schema.arrays import Vector
from services.strategies.base import BytesPerStep, WorkerContext, average_bytes_per_step
from services.strategies.gossip.mixing import MixingRound


async def exchange_with_neighbours(
    worker_context: WorkerContext, exchange_number: int, mixing_round: MixingRound, vector: Vector
) -> dict[int, Vector]:
    """Send a vector to all ranks that mix it, and return the vectors that this worker mixes, by rank.

    The result includes the worker's own vector. All vectors are on the device.

    Args:
        worker_context: resources of this worker.
        exchange_number: number that separates the messages of this exchange from those of other exchanges.
        mixing_round: weights of all workers, which determine who sends to whom.
        vector: vector of this worker, shape (n,), on the device; not changed until this call returns.

    Raises:
        NetworkError: a neighbour is gone, or has not sent in time.
    """
    member, device, rank = worker_context.group_member, worker_context.device, worker_context.rank
    sources, targets = mixing_round.source_ranks(rank), mixing_round.target_ranks(rank)
    if not sources and not targets:
        return {rank: vector}
    sent = device.to_host(vector)
    received = {source: np.empty_like(sent) for source in sources}
    async with asyncio.TaskGroup() as exchange:
        for target in targets:
            exchange.create_task(send_block(member, exchange_number, target, sent))
        for source, block in received.items():
            exchange.create_task(receive_block(member, exchange_number, source, block))
    return {rank: vector, **{source: device.to_device(block) for source, block in received.items()}}


def count_sent_bytes(
    rounds: Sequence[MixingRound], parameter_count: int, dtype: str, *, steps_per_exchange: int
) -> BytesPerStep:
    """Return the mean payload bytes per step of exchanges that send one vector to each target.

    Args:
        rounds: rounds of mixing, repeated in turn.
        parameter_count: entries of the vector.
        dtype: type of an entry, as in NumPy.
        steps_per_exchange: steps from one exchange to the next.
    """
    vector_bytes = parameter_count * np.dtype(dtype).itemsize
    vector_counts = (
        sum(len(mixing_round.target_ranks(rank)) for mixing_round in rounds) for rank in range(len(rounds[0].weights))
    )
    step_count = len(rounds) * steps_per_exchange
    return BytesPerStep(tuple(average_bytes_per_step(count * vector_bytes, step_count) for count in vector_counts))
