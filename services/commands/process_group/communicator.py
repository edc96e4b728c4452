"""Collectives of one group of ranks on NumPy vectors, with the declared collective and number format."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from services.collectives import RecursiveDoubling, TransferSchedule
from services.collectives.data_exchange.all_gather import plan_ring_all_gather
from services.collectives.data_exchange.blocks import exchange_blocks, receive_block, send_block
from services.collectives.data_exchange.broadcast import plan_tree_broadcast
from services.collectives.data_exchange.reduce_scatter import plan_ring_reduce_scatter
from services.collectives.execution.executor import GroupMember, run_transfers
from services.collectives.execution.payload_codec import UNCOMPRESSED, CombineEntries
from services.commands.process_group.settings import ProcessGroupSettings
from services.schema.arrays import HostArray


class GroupCommunicator:
    """Collectives of one rank in a group.

    All ranks call the same methods, with the same `step` and vectors of the same sizes.
    """

    def __init__(self, member: GroupMember, settings: ProcessGroupSettings) -> None:
        self._member = member
        self._settings = settings
        self._rank_count = len(member.node_names)
        self._plan_all_reduce = lru_cache(maxsize=256)(self._plan_all_reduce_of_size)

    async def all_reduce(
        self, step: int, vector: HostArray, combine_entries: CombineEntries, *, may_compress: bool
    ) -> None:
        """Reduce the vectors of all ranks, in place, with the declared collective.

        All ranks end with the same bits. With `may_compress`, partial sums have the declared number format.
        """
        schedule = self._plan_all_reduce(vector.size, vector.itemsize)
        compressor = self._settings.compressor_of(vector.dtype.name) if may_compress else UNCOMPRESSED
        payloads = await run_transfers(self._member, schedule, step, vector, compressor, combine_entries)
        payloads.round_sums_like_receiver()

    async def all_gather(self, step: int, vector: HostArray, chunk_sizes: Sequence[int]) -> None:
        """Fill in the chunks of all other ranks in `vector`; chunk k comes from rank k."""
        await run_transfers(self._member, _plan_all_gather(tuple(chunk_sizes)), step, vector)

    async def reduce_scatter(
        self,
        step: int,
        vector: HostArray,
        chunk_sizes: Sequence[int],
        combine_entries: CombineEntries,
        *,
        may_compress: bool,
    ) -> HostArray:
        """Return this rank's chunk of the reduced vectors, as a view of `vector`, whose other chunks are overwritten.

        With `may_compress`, partial sums have the declared number format.
        """
        schedule = _plan_reduce_scatter(tuple(chunk_sizes))
        compressor = self._settings.compressor_of(vector.dtype.name) if may_compress else UNCOMPRESSED
        await run_transfers(self._member, schedule, step, vector, compressor, combine_entries)
        return split_chunks(vector, chunk_sizes)[self._member.rank]

    async def broadcast(self, step: int, vector: HostArray, root_rank: int) -> None:
        """Replace the vector by that of `root_rank`."""
        await run_transfers(self._member, _plan_broadcast(self._rank_count, root_rank), step, vector)

    async def barrier(self, step: int) -> None:
        """Return when all ranks have called this method: an all-reduce of one byte."""
        await run_transfers(self._member, _plan_barrier(self._rank_count), step, np.zeros(1, np.uint8))

    async def all_to_all(self, step: int, outgoing: Sequence[HostArray], incoming: Sequence[HostArray]) -> None:
        """Send `outgoing[k]` to rank k and receive `incoming[k]` from rank k, for all ranks k."""
        await exchange_blocks(self._member, step, outgoing, incoming)

    async def send(self, step: int, vector: HostArray, target_rank: int) -> None:
        """Send a vector to one rank."""
        await send_block(self._member, step, target_rank, vector)

    async def receive(self, step: int, vector: HostArray, source_rank: int) -> None:
        """Receive a vector of the same size from one rank."""
        await receive_block(self._member, step, source_rank, vector)

    def _plan_all_reduce_of_size(self, entry_count: int, entry_bytes: int) -> TransferSchedule:
        return self._settings.choose_collective(entry_count, entry_bytes).plan_transfers(self._rank_count)


def split_chunks(vector: HostArray, chunk_sizes: Sequence[int]) -> list[HostArray]:
    """Return consecutive chunks of a vector as views."""
    return [vector[start:stop] for start, stop in pairwise(accumulate(chunk_sizes, initial=0))]


_plan_all_gather = lru_cache(maxsize=256)(plan_ring_all_gather)
_plan_reduce_scatter = lru_cache(maxsize=256)(plan_ring_reduce_scatter)
_plan_broadcast = lru_cache(maxsize=256)(plan_tree_broadcast)


@lru_cache(maxsize=16)
def _plan_barrier(rank_count: int) -> TransferSchedule:
    return RecursiveDoubling(rendezvous=False).plan_transfers(rank_count)
