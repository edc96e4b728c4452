"""Tests of all-gather, reduce-scatter, broadcast and all-to-all: exact results, bytes, and latency."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cluster.links.fluid_link import RateLimiter
from services.collectives import TransferSchedule
from services.collectives.data_exchange.all_gather import plan_ring_all_gather
from services.collectives.data_exchange.blocks import exchange_blocks
from services.collectives.data_exchange.broadcast import plan_tree_broadcast
from services.collectives.data_exchange.reduce_scatter import plan_ring_reduce_scatter
from services.collectives.execution.executor import GroupMember, run_transfers
from services.compressors import Compressor, Fp16, IdentityCompressor
from services.schema.arrays import HostArray
from services.transport.virtual import VirtualFabric

InVirtualTime: TypeAlias = Callable[[Any], Any]
chunk_sizes_by_rank = st.lists(st.integers(0, 40), min_size=1, max_size=9)


def make_members(rank_count: int, piece_bytes: int, bytes_per_s: float = inf, channel: int = 0) -> list[GroupMember]:
    """Return one member per rank, on links of equal rate."""
    names = [f"rank-{rank}" for rank in range(rank_count)]
    links = [{name: RateLimiter(bytes_per_s) for name in names} for _ in range(2)]
    fabric = VirtualFabric(*links, timeout_s=1e6)
    transports = [fabric.make_transport(name) for name in names]
    for transport in transports:
        transport.max_piece_bytes = piece_bytes
    return [GroupMember(transport, names, rank, channel) for rank, transport in enumerate(transports)]


async def run_all(
    members: Sequence[GroupMember],
    schedule: TransferSchedule,
    vectors: Sequence[HostArray],
    compressor: Compressor | None = None,
) -> float:
    """Run a schedule on all ranks, and return the time."""
    own = compressor or IdentityCompressor()
    await asyncio.gather(
        *(run_transfers(member, schedule, 0, vector, own) for member, vector in zip(members, vectors, strict=True))
    )
    return asyncio.get_running_loop().time()


def random_vectors(ranks: int, size: int, seed: int) -> list[HostArray]:
    """Return vectors of small whole numbers, whose sums are exact."""
    return list(np.random.default_rng(seed).integers(1, 100, (ranks, size)).astype("float32"))


def chunk_of(vector: HostArray, chunk_sizes: Sequence[int], rank: int) -> HostArray:
    start, stop = list(pairwise(accumulate(chunk_sizes, initial=0)))[rank]
    return vector[start:stop]


@settings(deadline=None, max_examples=60)
@given(chunk_sizes=chunk_sizes_by_rank, entries=st.integers(1, 50), seed=st.integers(0, 99))
def test_all_gather_gives_all_ranks_the_chunks_of_all(
    chunk_sizes: list[int], entries: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Chunks may be empty or differ in size, and pieces may have any length."""
    ranks = len(chunk_sizes)
    vectors = random_vectors(ranks, sum(chunk_sizes), seed)
    expected = np.concatenate([chunk_of(vectors[rank], chunk_sizes, rank) for rank in range(ranks)])

    in_virtual_time(run_all(make_members(ranks, 4 * entries), plan_ring_all_gather(chunk_sizes), vectors))

    assert all((vector == expected).all() for vector in vectors)


@settings(deadline=None, max_examples=60)
@given(chunk_sizes=chunk_sizes_by_rank, entries=st.integers(1, 50), seed=st.integers(0, 99))
def test_reduce_scatter_gives_each_rank_the_sum_of_its_chunk(
    chunk_sizes: list[int], entries: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Without rounding, a summand that is added twice or left out is visible."""
    ranks = len(chunk_sizes)
    vectors = random_vectors(ranks, sum(chunk_sizes), seed)
    total = np.sum(vectors, axis=0)

    in_virtual_time(run_all(make_members(ranks, 4 * entries), plan_ring_reduce_scatter(chunk_sizes), vectors))

    for rank, vector in enumerate(vectors):
        assert (chunk_of(vector, chunk_sizes, rank) == chunk_of(total, chunk_sizes, rank)).all()


@settings(deadline=None, max_examples=60)
@given(data=st.data(), ranks=st.integers(1, 17), size=st.integers(0, 200), entries=st.integers(1, 50))
def test_broadcast_gives_all_ranks_the_vector_of_the_root(
    data: st.DataObject, ranks: int, size: int, entries: int, in_virtual_time: InVirtualTime
) -> None:
    """Any rank may be the root, for any number of ranks."""
    root = data.draw(st.integers(0, ranks - 1))
    vectors = random_vectors(ranks, size, size)
    expected = vectors[root].copy()

    in_virtual_time(run_all(make_members(ranks, 4 * entries), plan_tree_broadcast(ranks, root), vectors))

    assert all((vector == expected).all() for vector in vectors)


@settings(deadline=None, max_examples=40)
@given(ranks=st.integers(1, 7), entries=st.integers(1, 20), seed=st.integers(0, 99))
def test_all_to_all_gives_each_rank_its_block_of_every_other(
    ranks: int, entries: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Blocks may be empty: an expert may get no row."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 30, (ranks, ranks))
    outgoing = [[rng.integers(0, 100, size) for size in row] for row in sizes]
    incoming = [[np.zeros(sizes[source, rank], np.int64) for source in range(ranks)] for rank in range(ranks)]

    async def exchange() -> None:
        members = make_members(ranks, 8 * entries)
        await asyncio.gather(
            *(exchange_blocks(member, 0, outgoing[rank], incoming[rank]) for rank, member in enumerate(members))
        )

    in_virtual_time(exchange())

    for rank in range(ranks):
        for source in range(ranks):
            assert (incoming[rank][source] == outgoing[source][rank]).all()


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ring_halves_send_half_the_bytes_of_an_all_reduce(ranks: int, in_virtual_time: InVirtualTime) -> None:
    """Gloo's reduce-scatter sends as much as an all-reduce."""
    size = 1000 * ranks
    for schedule in (plan_ring_all_gather((1000,) * ranks), plan_ring_reduce_scatter((1000,) * ranks)):
        assert schedule.payload_bytes_by_rank(ranks, size, lambda entries: 4 * entries) == (4000 * (ranks - 1),) * ranks
        seconds = in_virtual_time(run_all(make_members(ranks, 1 << 20, 1e6), schedule, random_vectors(ranks, size, 0)))
        assert seconds == pytest.approx((ranks - 1) * 4000 / 1e6, rel=0.02)


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 0), (2, 1), (3, 2), (8, 3), (9, 4)])
def test_broadcast_has_as_many_hops_as_a_binomial_tree(ranks: int, rounds: int) -> None:
    """Ranks that already have the vector double in every round."""
    schedule = plan_tree_broadcast(ranks, 0)

    assert len(schedule.rounds) == rounds
    assert sum(map(len, schedule.rounds)) == ranks - 1
    assert schedule.critical_path_latency_s(dict.fromkeys(schedule.sending_rank_pairs, 1.0)) <= rounds


def test_reduce_scatter_rounds_only_what_it_sends(in_virtual_time: InVirtualTime) -> None:
    """The last rank of a chunk adds its own summand unrounded, and sends the sum to no rank."""
    vectors = [np.full(2, 1 + 2.0**-20, "float32") for _ in range(2)]

    in_virtual_time(run_all(make_members(2, 1 << 20), plan_ring_reduce_scatter((1, 1)), vectors, Fp16()))

    assert [vectors[0][0], vectors[1][1]] == [np.float32(2 + 2.0**-20)] * 2


def test_channels_progress_independently(in_virtual_time: InVirtualTime) -> None:
    """A group in its hundredth step and one in its first share a transport, which drops messages of old steps."""

    async def run_two_groups() -> list[HostArray]:
        members = make_members(2, 1 << 20)
        schedule, vectors = plan_tree_broadcast(2, 0), [np.full(3, float(rank)) for rank in range(2)]
        for channel, step in ((1, 100), (2, 0), (1, 101), (2, 1)):
            vectors = [np.full(3, float(rank)) for rank in range(2)]
            await asyncio.gather(
                *(
                    run_transfers(member._replace(channel=channel), schedule, step, vector)
                    for member, vector in zip(members, vectors, strict=True)
                )
            )
        return vectors

    assert all((vector == 0).all() for vector in in_virtual_time(run_two_groups()))
