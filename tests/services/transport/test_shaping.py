"""Flows on the fluid network share pipes fairly, keep the order of messages and never wait without need."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, RateLimiter
from services.cluster.links.impairments import LognormalJitter
from services.cluster.network import Network, NetworkPath, SharedLink
from services.runtime.transport import Message, MessageKind, MessageTag
from services.transport.virtual import VirtualFabric

InVirtualTime = Callable[[Any], Any]

RATE_BPS = 8e6 * 1514 / 1448  # a megabyte of payload per second
MB_S = 1e6


def fabric(uplinks: dict[str, float], downlinks: dict[str, float], *pipes: SharedLink, **network: Any) -> VirtualFabric:
    """Return a fabric of nodes whose links have these rates in bytes per second."""
    ports = [{name: RateLimiter(rate) for name, rate in rates.items()} for rates in (uplinks, downlinks)]
    return VirtualFabric(*ports, timeout_s=1e6, network=Network(shared_links=pipes, **network))


async def send_all(network_fabric: VirtualFabric, flows: dict[tuple[str, str], int]) -> dict[tuple[str, str], float]:
    """Send these numbers of messages, all flows at once; return the arrival time of the last message of each flow."""

    async def send(source: str, target: str, count: int) -> None:
        for number in range(count):
            await network_fabric.make_transport(source).send(
                target, Message(MessageTag(0, MessageKind.PUSH, 0, number), bytes(MAX_FLUID_MESSAGE_BYTES))
            )

    async def receive(source: str, target: str, count: int) -> tuple[tuple[str, str], float]:
        times = []
        for number in range(count):
            await network_fabric.make_transport(target).receive(source, MessageTag(0, MessageKind.PUSH, 0, number))
            times.append(asyncio.get_running_loop().time())
        assert times == sorted(times)
        return (source, target), times[-1]

    sending = asyncio.gather(*(send(*pair, count) for pair, count in flows.items()))
    arrived = dict(await asyncio.gather(*(receive(*pair, count) for pair, count in flows.items())))
    await sending
    return arrived


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
@settings(max_examples=25)
def test_flows_share_a_pipe_and_fill_it(counts: list[int], in_virtual_time: InVirtualTime) -> None:
    """All flows together take the sum of the bytes over the rate; a shorter flow ends earlier."""
    sources, targets = [[f"{end}{k}" for k in range(len(counts))] for end in "st"]
    fast = dict.fromkeys([*sources, *targets], 20 * MB_S)
    pipe = SharedLink(name="pipe", rate_bps=RATE_BPS, sources=tuple(sources), targets=tuple(targets))
    flows = dict(zip(zip(sources, targets, strict=True), counts, strict=True))

    arrived = in_virtual_time(send_all(fabric(fast, fast, pipe), flows))

    message_s = MAX_FLUID_MESSAGE_BYTES / MB_S
    assert max(arrived.values()) == pytest.approx(sum(counts) * message_s, rel=1e-9)
    for pair, count in flows.items():
        fair_s = sum(min(count, other) for other in counts) * message_s
        assert arrived[pair] == pytest.approx(fair_s, abs=len(counts) * message_s)


def test_a_flow_with_a_slow_link_leaves_the_rest_of_the_pipe_to_other_flows(in_virtual_time: InVirtualTime) -> None:
    """Shares are fair as in TCP: a flow that can't use its half leaves the rest to the other flow."""
    up, down = {"slow": 0.1 * MB_S, "fast": 10 * MB_S}, {"here": 10 * MB_S, "there": 10 * MB_S}
    pipe = SharedLink(name="pipe", rate_bps=RATE_BPS, sources=("slow", "fast"), targets=("here", "there"))

    network_fabric = fabric(up | down, up | down, pipe)
    arrived = in_virtual_time(send_all(network_fabric, {("slow", "here"): 5, ("fast", "there"): 45}))

    seconds = 50 * MAX_FLUID_MESSAGE_BYTES / MB_S
    assert arrived["slow", "here"] == pytest.approx(5 * MAX_FLUID_MESSAGE_BYTES / (0.1 * MB_S), rel=0.03)
    assert arrived["fast", "there"] == pytest.approx(seconds, rel=0.03)


def test_a_full_pipe_does_not_delay_flows_that_do_not_pass_it(in_virtual_time: InVirtualTime) -> None:
    """Sender and receiver also have a flow that waits for the pipe: their links are free meanwhile."""
    nodes = dict.fromkeys(["a", "b", "c"], MB_S)
    pipe = SharedLink(name="thin", rate_bps=RATE_BPS / 10, sources=("a",), targets=("b",))

    arrived = in_virtual_time(send_all(fabric(nodes, nodes, pipe), {("a", "b"): 9, ("a", "c"): 30, ("c", "b"): 30}))

    assert arrived["a", "b"] == pytest.approx(9 * MAX_FLUID_MESSAGE_BYTES / (0.1 * MB_S), rel=0.02)
    # Meanwhile four messages of the thin flow pass, and a fifth has left the uplink and waits for the pipe.
    assert arrived["a", "c"] == pytest.approx(35 * MAX_FLUID_MESSAGE_BYTES / MB_S, rel=0.01)
    assert arrived["c", "b"] == pytest.approx(34 * MAX_FLUID_MESSAGE_BYTES / MB_S, rel=0.02)


def test_a_delay_is_added_once_and_keeps_the_order_of_messages(in_virtual_time: InVirtualTime) -> None:
    """Messages follow each other on a long path; one with a short random delay waits for those before it."""
    nodes = dict.fromkeys(["a", "b"], MB_S)
    jitter = LognormalJitter(deviation="200ms")

    times = [
        in_virtual_time(send_all(fabric(nodes, nodes, paths=(path,)), {("a", "b"): 50}))["a", "b"]
        for path in (
            NetworkPath(source="a", target="b", delay_s=0.5),
            NetworkPath(source="a", target="b", delay_s=0.5, jitters=(jitter,)),
        )
    ]

    assert times[0] == pytest.approx(50 * MAX_FLUID_MESSAGE_BYTES / MB_S + 0.5, rel=1e-9)
    assert times[1] > 50 * MAX_FLUID_MESSAGE_BYTES / MB_S
