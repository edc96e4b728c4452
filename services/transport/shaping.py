"""Shaping of messages in the transport, if the kernel cannot shape them.

The transport delays messages as the emulated network would. `FluidModelLinkShaping` emulates the whole network: rates,
shared links and delays, and the events that change them. `PathDelayShaping` adds delays alone, for a host whose kernel
can shape rates but can't delay. Neither loses packets or has buffers that overflow.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from math import inf
from random import Random
from typing import ClassVar

from services.cluster.links.fluid_link import (
    MAX_FLUID_MESSAGE_BYTES,
    FirstLastByteTimes,
    RateLimiter,
    to_goodput_bytes_per_s,
)
from services.cluster.links.link_conditions import ActiveLinkEvents, Direction
from services.cluster.network import Network
from services.runtime.clock import Clock
from services.schema.errors import DeadlineExceeded


class PathDelaySampler:
    """Sampler of the one-way delays on the paths to one node.

    Messages of one sender keep their order.
    """

    def __init__(self, node_name: str, network: Network, seed: int) -> None:
        self._delay_samples: dict[str, Iterator[float]] = {
            path.source: path.iter_one_way_delays_s(Random(f"{seed} {path.source} {node_name}"))
            for path in network.paths_to(node_name)
        }
        self._last_delivery_s: dict[str, float] = defaultdict(float)

    def delivery_time(self, source: str, arrival_s: float, extra_delay_s: float = 0.0) -> float:
        """Return the virtual time at which to deliver a message.

        The message has passed its last link at time `arrival_s`.
        """
        delay_s = next(self._delay_samples[source]) if source in self._delay_samples else 0.0
        delivery_s = max(self._last_delivery_s[source], arrival_s + delay_s + extra_delay_s)
        self._last_delivery_s[source] = delivery_s
        return delivery_s


class TransportShaping(ABC):
    """Base class of emulators that delay the messages of a node.

    Messages are delayed, in virtual time, as the declared network would delay them.
    """

    max_piece_bytes: int | None = None  # largest message that is emulated well; None: any size is
    # Whether messages occupy emulated links by their size. If not, links of the kernel carry their bytes.
    emulates_rates: ClassVar[bool]

    @abstractmethod
    def delay_outgoing(self, target_name: str, size_bytes: int) -> AbstractAsyncContextManager[FirstLastByteTimes]:
        """Return a context manager that waits until the emulated link is free.

        Send the message in its `with` block.
        """

    @abstractmethod
    async def delay_incoming(self, source_name: str, byte_arrival_times: FirstLastByteTimes, size_bytes: int) -> float:
        """Let a message pass the receiver's emulated link.

        Return the virtual time at which to deliver the message. The call returns when the next message of this sender
        may enter the link.
        """


@dataclass(frozen=True)
class NodeLinks:
    """Links that the messages of a node pass.

    The links are the node's own uplink and downlink, and the links shared with other nodes.
    """

    uplink: RateLimiter
    downlink: RateLimiter
    shared_links: Sequence[RateLimiter] = ()  # in the order of the network


class FluidModelLinkShaping(TransportShaping):
    """Emulation of a node's uplink, downlink and shared links by a fluid model.

    In the fluid model each link is a pipe with a data rate. Of the messages to one target only one waits at a link, the
    others wait behind it. A link therefore serves pairs of nodes in turn, as it would serve TCP flows. A new rate
    applies to messages that have not entered the link yet.
    """

    emulates_rates = True

    def __init__(
        self,
        node_name: str,
        links: NodeLinks,
        network: Network,
        seed: int,
        clock: Clock,
        conditions: ActiveLinkEvents | None = None,
        max_piece_bytes: int = MAX_FLUID_MESSAGE_BYTES,
        timeout_s: float = inf,
    ) -> None:
        """Create the emulation of a node's links.

        A message waits for the end of a partition for at most `timeout_s` virtual seconds.
        """
        self.max_piece_bytes = max_piece_bytes
        self._timeout_s = timeout_s
        self._node_name = node_name
        self._links = links
        self._network = network
        self._clock = clock
        self._conditions = conditions or ActiveLinkEvents()
        self._delays = PathDelaySampler(node_name, network, seed)
        self._declared_bytes_per_s: dict[Direction, float] = {
            "uplink": links.uplink.bytes_per_s,
            "downlink": links.downlink.bytes_per_s,
        }
        self._uplink_lock, self._downlink_lock = asyncio.Lock(), asyncio.Lock()
        self._target_locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._source_locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._shared_links: dict[str, tuple[RateLimiter, ...]] = {}  # by target
        self._conditions.add_listener(self._update_link_rates)

    @asynccontextmanager
    async def delay_outgoing(self, target_name: str, size_bytes: int) -> AsyncIterator[FirstLastByteTimes]:
        async with self._target_locks[target_name]:
            await self._wait_until_connected(target_name)
            # Yield to the event loop: a message to another target that is sent now goes before the next one to this.
            await asyncio.sleep(0)
            now = self._clock.now()
            passage = await self._pass_message_over_link(
                self._links.uplink, self._uplink_lock, FirstLastByteTimes(now, now), size_bytes
            )
            await self._clock.sleep_until(passage.begin_s)
            for shared_link in self._shared_links_to(target_name):
                passage = shared_link.pass_and_time_message(passage, size_bytes)
                await self._clock.sleep_until(passage.begin_s)
            yield passage

    async def _wait_until_connected(self, target_name: str) -> None:
        """Wait until no partition separates this node from another.

        Raises:
            DeadlineExceeded: the partition lasts longer than the time within which a message must be accepted.
        """
        if not self._conditions.is_partitioned(self._node_name, target_name):
            return
        try:
            async with asyncio.timeout(self._clock.to_wall_s(self._timeout_s)):
                await self._conditions.wait_until_connected(self._node_name, target_name)
        except TimeoutError:
            message = f"{target_name} did not accept a message within {self._timeout_s:g} s"
            raise DeadlineExceeded(message) from None

    async def delay_incoming(self, source_name: str, byte_arrival_times: FirstLastByteTimes, size_bytes: int) -> float:
        async with self._source_locks[source_name]:
            passage = await self._pass_message_over_link(
                self._links.downlink, self._downlink_lock, byte_arrival_times, size_bytes
            )
            extra_delay_s = self._conditions.delay_s_added_by_events(source_name, self._node_name)
            return self._delays.delivery_time(source_name, passage.end_s, extra_delay_s)

    async def _pass_message_over_link(
        self,
        rate_limiter: RateLimiter,
        link_lock: asyncio.Lock,
        byte_arrival_times: FirstLastByteTimes,
        size_bytes: int,
    ) -> FirstLastByteTimes:
        """Wait until a link of this node is free, then let a message pass the link.

        The message passes at the link's current rate.
        """
        async with link_lock:
            await self._clock.sleep_until(rate_limiter.next_free_time_s)
            return rate_limiter.pass_and_time_message(byte_arrival_times, size_bytes)

    def _shared_links_to(self, peer: str) -> tuple[RateLimiter, ...]:
        """Return the shared links between this node and `peer`."""
        if peer not in self._shared_links:
            pairs = zip(self._network.shared_links, self._links.shared_links, strict=True)
            self._shared_links[peer] = tuple(link for pipe, link in pairs if pipe.carries_flow(self._node_name, peer))
        return self._shared_links[peer]

    def _update_link_rates(self) -> None:
        """Set the rates of this node's links after an event that changed link conditions.

        The event may have changed the links of any node.
        """
        for direction, declared_bytes_per_s in self._declared_bytes_per_s.items():
            rate_bps = self._conditions.rate_bps_set_by_events(self._node_name, direction)
            link: RateLimiter = getattr(self._links, direction)
            link.bytes_per_s = declared_bytes_per_s if rate_bps is None else to_goodput_bytes_per_s(rate_bps)


class PathDelayShaping(TransportShaping):
    """Emulation of delays and jitter alone.

    The kernel emulates the rest of the network.
    """

    emulates_rates = False

    def __init__(self, node_name: str, network: Network, seed: int, clock: Clock) -> None:
        self._clock = clock
        self._delays = PathDelaySampler(node_name, network, seed)

    @asynccontextmanager
    async def delay_outgoing(self, target_name: str, size_bytes: int) -> AsyncIterator[FirstLastByteTimes]:  # noqa: ARG002 - no rate
        yield FirstLastByteTimes(self._clock.now(), self._clock.now())

    async def delay_incoming(self, source_name: str, byte_arrival_times: FirstLastByteTimes, size_bytes: int) -> float:  # noqa: ARG002
        return self._delays.delivery_time(source_name, self._clock.now())
