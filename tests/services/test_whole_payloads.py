"""Sums of payloads that are added as they are, and the checksum of what is not added."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cluster.links.fluid_link import RateLimiter
from services.collectives import Collective, HalvingDoubling, RecursiveDoubling, Ring
from services.collectives.all_gather import RingAllGather
from services.collectives.execution.executor import GroupMember
from services.collectives.execution.whole_payloads import PayloadSumLayout, add_payloads, gather_payloads
from services.compressors import CompressedPayload
from services.schema.errors import ProtocolError
from services.transport.virtual import VirtualFabric

InVirtualTime: TypeAlias = Callable[[Any], Any]
COLLECTIVES = [Ring(), HalvingDoubling(), RecursiveDoubling()]


def make_members(rank_count: int) -> list[GroupMember]:
    """Return one member per rank, on links without a limit."""
    names = [f"rank-{rank}" for rank in range(rank_count)]
    links = [{name: RateLimiter(float("inf")) for name in names} for _ in range(2)]
    fabric = VirtualFabric(*links, timeout_s=1e6)
    return [GroupMember(fabric.make_transport(name), names, rank) for rank, name in enumerate(names)]


async def add_all(collective: Collective, payloads: Sequence[CompressedPayload]) -> list[CompressedPayload]:
    """Return the sum of the payloads on each rank."""
    schedule = collective.plan_transfers(len(payloads))
    members = make_members(len(payloads))
    sums = (add_payloads(member, schedule, 0, payload) for member, payload in zip(members, payloads, strict=True))
    results = await asyncio.gather(*sums, return_exceptions=True)
    if errors := [result for result in results if isinstance(result, BaseException)]:
        raise errors[0]
    return [result for result in results if isinstance(result, CompressedPayload)]


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda collective: collective.kind)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@settings(deadline=None, max_examples=10)
@given(ranks=st.integers(1, 9), size=st.integers(1, 40), seed=st.integers(0, 99))
def test_numbers_are_added_and_other_arrays_are_kept(
    collective: Collective, dtype: str, ranks: int, size: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Whole numbers make the sums exact; two arrays of numbers are one sum, with the other array between them."""
    rng = np.random.default_rng(seed)
    indices = rng.permutation(100)[:size].astype("uint32")
    first, second = rng.integers(-20, 20, (2, ranks, size)).astype(dtype)
    payloads = [CompressedPayload((a, indices, b), 100) for a, b in zip(first, second, strict=True)]

    sums = in_virtual_time(add_all(collective, payloads))

    for total in sums:
        assert total.entries == 100
        assert [array.dtype for array in total.arrays] == [dtype, "uint32", dtype]
        for array, expected in zip(total.arrays, (first.sum(0), indices, second.sum(0)), strict=True):
            assert (array == expected).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda collective: collective.kind)
@settings(deadline=None, max_examples=15)
@given(ranks=st.integers(2, 9), seed=st.integers(0, 10_000))
def test_different_indices_on_one_rank_are_an_error(
    dtype: str, collective: Collective, ranks: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """The numbers at the same place of two payloads would belong to different entries of the vector."""
    rng = np.random.default_rng(seed)
    indices = np.tile(rng.integers(0, 1000, 20).astype("uint32"), (ranks, 1))
    indices[rng.integers(ranks), rng.integers(20)] += 1 + seed
    payloads = [CompressedPayload((row, np.ones(20, dtype)), 1000) for row in indices]

    with pytest.raises(ProtocolError, match="compresses other entries than another rank in exchange 0"):
        in_virtual_time(add_all(collective, payloads))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("ranks", [1, 2, 8, 100, 1000])
def test_sum_of_a_checksum_is_exact(dtype: str, ranks: int) -> None:
    """A rounded sum would be an error although all ranks agree."""
    layout = PayloadSumLayout.of([("uint32", 5), (dtype, 7)])
    parts = layout.split_checksum(2**32 - 1, ranks)

    total = np.zeros_like(parts)
    for _ in range(ranks):
        total = total + parts

    assert total.tolist() == [ranks * int(part) for part in parts]
    assert layout.entry_count == 7
    assert layout.total_entry_count(ranks) == 7 + len(parts)
    bits = [bit for part in parts for bit in f"{int(part):b}"]
    assert bits == ["1"] * 32


def test_payload_without_other_arrays_needs_no_checksum() -> None:
    """Values whose places follow from the seed alone are all that has to be sent."""
    assert PayloadSumLayout.of([("float32", 7)]).total_entry_count(8) == 7


@pytest.mark.parametrize("formats", [[("uint8", 3)], [("float32", 3), ("float16", 3)]])
def test_payload_without_numbers_of_one_type_cannot_be_added(formats: list[tuple[str, int]]) -> None:
    """A collective adds one vector."""
    with pytest.raises(ProtocolError, match="needs floating-point numbers of one type"):
        PayloadSumLayout.of(formats)


def test_gathered_payloads_of_different_sizes_are_an_error(in_virtual_time: InVirtualTime) -> None:
    """Otherwise a rank would read the payload of another one at a wrong place."""

    async def gather_all() -> None:
        members = make_members(3)
        schedule = RingAllGather().plan_transfers(3)
        payloads = [np.zeros(size, np.uint8) for size in (10, 10, 12)]
        await asyncio.gather(
            *(gather_payloads(member, schedule, 0, each) for member, each in zip(members, payloads, strict=True))
        )

    with pytest.raises(ProtocolError, match="bytes"):
        in_virtual_time(gather_all())
