"""Transfers of the collectives of a user's command, with gloo and with the collectives of Ensayo."""

from collections import Counter
from typing import NamedTuple

from services.collectives import RecursiveDoubling, Ring, TransferSchedule
from services.collectives.base import Transfer
from services.collectives.data_exchange.all_gather import plan_ring_all_gather
from services.collectives.data_exchange.broadcast import plan_tree_broadcast
from services.collectives.data_exchange.reduce_scatter import plan_ring_reduce_scatter
from services.compressors import Compressor, IdentityCompressor
from services.scenario.commands.step_profile import CollectiveCall
from services.strategies import CommandStrategy
from services.strategies.command import compressor_of_type

ENTRY_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}  # others: 1
FLOAT_TYPES = ("float32", "float64")


class CollectiveTransfers(NamedTuple):
    """Transfers of a collective among so many ranks, and the vector that they divide."""

    group_size: int
    schedule: TransferSchedule
    entries: int
    dtype: str  # of NumPy, with as many bytes as the type of the tensor
    compressor: Compressor = IdentityCompressor()

    @property
    def sent_bytes_by_rank(self) -> tuple[int, ...]:
        """Payload bytes that each rank of the group sends."""
        return self.schedule.payload_bytes_by_rank(
            self.group_size, self.entries, lambda size: self.compressor.compressed_size_bytes(size, self.dtype)
        )

    @property
    def has_equal_senders(self) -> bool:
        """Whether all ranks of the group send equally many chunks, so that their bytes differ by rounding only."""
        counts = Counter(dict.fromkeys(range(self.group_size), 0))
        for transfer in self.schedule.transfers_of_all_rounds:
            counts[transfer.source] += transfer.sum_chunk_sizes((1,) * self.schedule.chunk_count)
        return len(set(counts.values())) == 1


def plan_collective(
    call: CollectiveCall, strategy: CommandStrategy, *, runs_on_gloo: bool
) -> CollectiveTransfers | None:
    """Return the transfers of a collective; None if they are not known here.

    Those of a broadcast depend on its root. The all-reduce of gloo is a ring, its reduce_scatter an all-reduce of which
    each rank keeps a part.
    """
    ranks = call.group_size
    if call.operation == "broadcast":
        return None if call.root_rank is None else _plan_broadcast(call, call.root_rank, runs_on_gloo=runs_on_gloo)
    if call.operation == "all_gather":
        return CollectiveTransfers(ranks, plan_ring_all_gather((call.bytes,) * ranks), call.bytes * ranks, "uint8")
    if call.operation == "barrier":
        schedule = TransferSchedule() if runs_on_gloo else RecursiveDoubling(rendezvous=False).plan_transfers(ranks)
        return CollectiveTransfers(ranks, schedule, 1, "uint8")
    if call.operation not in ("all_reduce", "reduce_scatter"):
        return None
    if runs_on_gloo:
        return CollectiveTransfers(ranks, Ring().plan_transfers(ranks), *entries_and_dtype_of(call))
    return _plan_sum(call, strategy)


def _plan_broadcast(call: CollectiveCall, root_rank: int, *, runs_on_gloo: bool) -> CollectiveTransfers:
    plan = plan_gloo_broadcast if runs_on_gloo else plan_tree_broadcast
    return CollectiveTransfers(call.group_size, plan(call.group_size, root_rank), call.bytes, "uint8")


def _plan_sum(call: CollectiveCall, strategy: CommandStrategy) -> CollectiveTransfers:
    """Return the transfers of a sum with the collectives of Ensayo: gloo does what the declared collective can't do."""
    ranks, (entries, dtype) = call.group_size, entries_and_dtype_of(call)
    compressor = compressor_of_sum(call, strategy)
    if call.operation == "reduce_scatter":
        schedule = plan_ring_reduce_scatter((entries // ranks,) * ranks)
        return CollectiveTransfers(ranks, schedule, entries // ranks * ranks, dtype, compressor)
    if strategy.collective.unsupported_rank_count_reason(ranks):
        return CollectiveTransfers(ranks, Ring().plan_transfers(ranks), entries, dtype)
    return CollectiveTransfers(ranks, strategy.collective.plan_transfers(ranks), entries, dtype, compressor)


def compressor_of_sum(call: CollectiveCall, strategy: CommandStrategy) -> Compressor:
    """Return the number format in which Ensayo sends the partial results of an all_reduce or a reduce_scatter.

    Only sums and means of fp32 and fp64 are compressed.
    """
    return compressor_of_type(strategy.compress, call.dtype) if call.adds_entries else IdentityCompressor()


def entries_and_dtype_of(call: CollectiveCall) -> tuple[int, str]:
    """Return the number of entries of the tensor of a call, and a type of NumPy with as many bytes."""
    entry_bytes = ENTRY_BYTES.get(call.dtype, 1)
    return call.bytes // entry_bytes, call.dtype if call.dtype in FLOAT_TYPES else f"uint{8 * entry_bytes}"


def plan_gloo_broadcast(rank_count: int, root_rank: int) -> TransferSchedule:
    """Return the schedule of gloo's broadcast along a binomial tree, in which whole tensors are forwarded.

    In round i, the 2^i ranks after the root that have the tensor send it to as many others, 2^i ranks on.
    """
    distances = [1 << bit for bit in range((rank_count - 1).bit_length())]
    rounds = tuple(
        tuple(
            Transfer((root_rank + place) % rank_count, (root_rank + place + distance) % rank_count, 0, 1, "copy")
            for place in range(min(distance, rank_count - distance))
        )
        for distance in distances
    )
    return TransferSchedule(rounds=rounds)
