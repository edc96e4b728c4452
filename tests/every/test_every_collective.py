"""Every collective through one battery: the sum, the same bits everywhere, as many bytes and seconds as it says."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.collectives import AnyCollective, Collective, Ring, Route
from services.collectives.executor import all_reduce
from services.device import HostArray
from services.layout import ranges
from services.links import QUANTUM_BYTES, Port
from services.strategies.all_reduce import AllReduce
from services.transport.base import Traffic
from services.transport.virtual import Fabric

EXAMPLES: list[Collective] = [Ring()]
RANKS = (*range(1, 10), 16)
SIZES = (1, 2, 3, 7, 64, 1001)  # fewer entries than ranks among them, and chunks of unequal length
DTYPES = ("float32", "float64")

InVirtualTime: TypeAlias = Callable[[Any], Any]

every_collective = pytest.mark.parametrize("collective", EXAMPLES, ids=lambda member: member.kind)
any_ranks = pytest.mark.parametrize("ranks", RANKS)


@dataclass(frozen=True)
class Exchange:
    """What one all-reduce did."""

    vectors: list[HostArray]  # by rank, afterwards
    traffic: list[Traffic]  # by rank
    seconds: float


async def exchange(routes: Sequence[Route], vectors: list[HostArray], bytes_per_s: float = inf) -> Exchange:
    """All ranks at once, on links of equal rate."""
    names = [f"rank-{rank}" for rank in range(len(vectors))]
    links = [{name: Port(bytes_per_s) for name in names} for _ in range(2)]
    fabric = Fabric(*links, timeout_s=1e6)
    transports = [fabric.transport(name) for name in names]
    results = [vector.copy() for vector in vectors]
    await asyncio.gather(
        *(
            all_reduce(transport, names, rank, routes, 0, result)
            for rank, (transport, result) in enumerate(zip(transports, results, strict=True))
        )
    )
    return Exchange(results, [each.traffic for each in transports], asyncio.get_running_loop().time())


def normal(ranks: int, size: int, dtype: str, seed: int = 0) -> list[HostArray]:
    """One vector per rank."""
    return list(np.random.default_rng(seed).standard_normal((ranks, size)).astype(dtype))


def sent_by(collective: Collective, ranks: int, rank: int, size: int) -> int:
    """Bytes that the plan promises for a vector of `size` fp32 entries."""
    return AllReduce(collective=collective).bytes_per_step(ranks, size, "float32").workers[rank]


def test_every_member_of_the_family_of_collectives_stands_in_the_table() -> None:
    """A collective that is not in the table is not tested."""
    union = get_args(AnyCollective)
    members = get_args(union[0]) if union else (AnyCollective,)

    assert {type(collective) for collective in EXAMPLES} == set(members)


@every_collective
def test_a_collective_is_read_from_what_it_writes(collective: Collective) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyCollective).validate_json(collective.model_dump_json()) == collective


@every_collective
@any_ranks
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_every_rank_ends_with_the_sum_in_the_same_bits(
    collective: Collective, ranks: int, size: int, dtype: str, in_virtual_time: InVirtualTime
) -> None:
    """Replicas that differ in one bit drift apart; a chunk that is reduced along one path can't differ."""
    vectors = normal(ranks, size, dtype)

    done = in_virtual_time(exchange(collective.routes(ranks), vectors))

    tolerance = ranks * np.finfo(dtype).eps * sum(abs(vector) for vector in vectors)
    assert (abs(done.vectors[0] - np.sum(vectors, axis=0, dtype="float64")) <= tolerance).all()
    assert {vector.tobytes() for vector in done.vectors} == {done.vectors[0].tobytes()}
    assert done.vectors[0].dtype == np.dtype(dtype)


@every_collective
@settings(deadline=None, max_examples=30)
@given(ranks=st.sampled_from(RANKS), size=st.integers(1, 300), seed=st.integers(0, 99))
def test_whole_numbers_are_summed_exactly(
    collective: Collective, ranks: int, size: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Without rounding nothing hides a chunk that was added twice or left out."""
    vectors = [np.round(100 * vector) for vector in normal(ranks, size, "float64", seed)]

    done = in_virtual_time(exchange(collective.routes(ranks), vectors))

    for vector in done.vectors:
        assert (vector == np.sum(vectors, axis=0)).all()


@every_collective
@any_ranks
@pytest.mark.parametrize("size", [*SIZES, 3 * QUANTUM_BYTES // 4 + 5])
def test_bytes_and_messages_are_those_counted_from_the_routes(
    collective: Collective, ranks: int, size: int, in_virtual_time: InVirtualTime
) -> None:
    """Bytes per node are promised before a run and compared with its network interface afterwards."""
    routes = collective.routes(ranks)
    chunks = ranges(size, len(routes)) if routes else ()
    pieces = [-(-chunk.size * 4 // QUANTUM_BYTES) for chunk in chunks]

    done = in_virtual_time(exchange(routes, normal(ranks, size, "float32")))

    for rank, traffic in enumerate(done.traffic):
        assert traffic.payload_bytes == sent_by(collective, ranks, rank, size)
        assert traffic.messages == sum(r.sends(rank) * count for r, count in zip(routes, pieces, strict=True))


@every_collective
@any_ranks
def test_every_chunk_is_added_once_per_other_rank_and_told_to_every_other_rank(
    collective: Collective, ranks: int
) -> None:
    """n-1 additions make the sum of n; one more would count somebody twice."""
    for route in collective.routes(ranks):
        assert len(route.sums) == len(route.spreads) == ranks - 1
        assert all(len(route.passes_to(rank)) <= 1 for rank in range(ranks))
        assert all(len(route.copies_from(rank)) <= 1 for rank in range(ranks))


@every_collective
@any_ranks
def test_routes_have_no_cycle_and_reach_everybody(collective: Collective, ranks: int) -> None:
    """Along a cycle everybody waits for everybody; from outside a tree a rank's gradient is lost."""
    for route in collective.routes(ranks):
        (root,) = set(range(ranks)) - {source for source, _ in route.sums}
        towards_root = dict(route.sums)
        from_root = {target: source for source, target in route.spreads}

        for rank in range(ranks):
            assert climb(rank, towards_root, ranks) == root
            assert climb(rank, from_root, ranks) == root


def climb(rank: int, parents: dict[int, int], ranks: int) -> int | None:
    """Where the way up ends; None when it doesn't."""
    for _ in range(ranks):
        if rank not in parents:
            return rank
        rank = parents[rank]
    return None


@every_collective
@any_ranks
def test_chunks_are_numbered_in_order(collective: Collective, ranks: int) -> None:
    """The executor cuts the vector by position, and the number names the messages."""
    routes = collective.routes(ranks)

    assert [route.chunk for route in routes] == list(range(len(routes)))


@every_collective
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 16])
def test_the_closed_form_is_the_time_on_the_virtual_fabric(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """The prediction and the network of the simulation are two models; on equal links they must tell the same time."""
    size, rate = ranks * 2 * QUANTUM_BYTES // 4, 1e6

    done = in_virtual_time(exchange(collective.routes(ranks), normal(ranks, size, "float32"), rate))

    assert done.seconds == pytest.approx(collective.seconds(ranks, 4 * size, alpha_s=0.0, beta_s=1 / rate), rel=0.02)


@every_collective
def test_one_rank_alone_exchanges_nothing_and_takes_no_time(
    collective: Collective, in_virtual_time: InVirtualTime
) -> None:
    """Speed-up is measured against one worker, which must not pay for an exchange with itself."""
    (vector,) = normal(1, 64, "float32")

    done = in_virtual_time(exchange(collective.routes(1), [vector], bytes_per_s=1.0))

    assert done.vectors[0].tobytes() == vector.tobytes()
    assert (done.traffic[0].messages, done.seconds, collective.seconds(1, 1e6, 1.0, 1.0)) == (0, 0.0, 0.0)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_ring_sends_two_n_minus_one_messages_and_that_share_of_the_vector(ranks: int) -> None:
    """Patarasuk and Yuan's bound: no all-reduce moves fewer bytes, so one byte more would be a bug."""
    routes, size = Ring().routes(ranks), 5040 * 16  # divisible by every number of ranks

    for rank in range(ranks):
        assert sum(route.sends(rank) for route in routes) == 2 * (ranks - 1)
        assert sent_by(Ring(), ranks, rank, size) == 4 * 2 * (ranks - 1) * size // ranks


def test_a_rings_slowest_link_sets_the_time(in_virtual_time: InVirtualTime) -> None:
    """Everything passes through every rank: a ring is as fast as its slowest member, which is why stragglers hurt."""

    async def with_a_slow_rank() -> float:
        names = [f"rank-{rank}" for rank in range(4)]
        uplinks, downlinks = ({name: Port(1e6) for name in names} for _ in range(2))
        uplinks["rank-2"] = Port(2.5e5)
        fabric = Fabric(uplinks, downlinks, timeout_s=1e6)
        vectors = normal(4, 8 * QUANTUM_BYTES // 4, "float32")
        await asyncio.gather(
            *(
                all_reduce(fabric.transport(name), names, rank, Ring().routes(4), 0, vectors[rank])
                for rank, name in enumerate(names)
            )
        )
        return asyncio.get_running_loop().time()

    seconds = in_virtual_time(with_a_slow_rank())

    slow = Ring().seconds(4, 8 * QUANTUM_BYTES, 0.0, 1 / 2.5e5)
    assert slow <= seconds <= 1.15 * slow
