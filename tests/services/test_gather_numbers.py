"""Properties of the all-gather of one number per rank."""

import asyncio

import pytest

from services.cluster.links.fluid_link import RateLimiter, to_goodput_bytes_per_s
from services.collectives.data_exchange.gather_numbers import gather_numbers, gather_rounds, gather_target_ranks
from services.collectives.execution.executor import GroupMember
from services.runtime.clock import VirtualTimeLoop
from services.runtime.transport import SentTraffic
from services.transport.virtual import VirtualFabric


def gather(numbers: list[float], steps: int = 1) -> tuple[list[list[tuple[float, ...]]], list[SentTraffic]]:
    """Return the numbers that each rank has gathered in each step, and the traffic of each rank."""
    names = [f"worker-{rank}" for rank in range(len(numbers))]

    async def run() -> tuple[list[list[tuple[float, ...]]], list[SentTraffic]]:
        links = [{name: RateLimiter(to_goodput_bytes_per_s(None)) for name in names} for _ in range(2)]
        fabric = VirtualFabric(*links, timeout_s=10.0)
        transports = [fabric.make_transport(name) for name in names]
        members = [GroupMember(transport, names, rank) for rank, transport in enumerate(transports)]

        async def gather_all(member: GroupMember) -> list[tuple[float, ...]]:
            return [await gather_numbers(member, step, numbers[member.rank] + step) for step in range(steps)]

        gathered = await asyncio.gather(*map(gather_all, members))
        return list(gathered), [transport.traffic for transport in transports]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())


@pytest.mark.parametrize("ranks", range(1, 18))
def test_every_rank_gets_the_numbers_of_all_ranks_in_rank_order(ranks: int) -> None:
    """All ranks compute shares from the same bits, in consecutive exchanges too."""
    numbers = [1 / (rank + 3) for rank in range(ranks)]

    gathered, _ = gather(numbers, steps=3)

    assert gathered == [[tuple(number + step for number in numbers) for step in range(3)]] * ranks


@pytest.mark.parametrize("ranks", range(1, 18))
def test_sent_bytes_and_messages_are_those_of_the_plan(ranks: int) -> None:
    """The plan of a trial counts 8(n-1) bytes and ⌈lg n⌉ messages per worker and exchange."""
    _, traffic = gather([1.0] * ranks)

    assert {each.payload_bytes for each in traffic} == {8 * (ranks - 1)}
    assert {each.messages for each in traffic} == {len(gather_rounds(ranks))} == {(ranks - 1).bit_length()}


@pytest.mark.parametrize("ranks", range(1, 18))
def test_a_rank_sends_only_to_its_targets(ranks: int) -> None:
    """Workers open these connections before training starts."""
    _, traffic = gather([1.0] * ranks)

    for rank, each in enumerate(traffic):
        assert set(each.payload_bytes_by_peer) == {f"worker-{target}" for target in gather_target_ranks(ranks, rank)}
