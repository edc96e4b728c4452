"""How does a transport make messages as late as the emulated network would, where no kernel does?

`FluidLink` is the whole network: rates, pipes and delays, with events that change them. `DelayLine` adds delays alone,
for a host whose kernel shapes rates and can't delay. Neither loses packets or has buffers that overflow.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random

from services.cluster.fluid_link import QUANTUM_BYTES, Passage, Port, goodput
from services.cluster.link_conditions import Conditions, Direction
from services.cluster.network import Network
from services.runtime.clock import Clock


class Delays:
    """One-way delays towards one node; messages of one sender keep their order."""

    def __init__(self, node: str, network: Network, seed: int) -> None:
        self._laws: dict[str, Iterator[float]] = {
            path.source: path.delays(Random(f"{seed} {path.source} {node}")) for path in network.into(node)
        }
        self._last: dict[str, float] = defaultdict(float)

    def due(self, source: str, arrived: float, more_s: float = 0.0) -> float:
        """When a message may be delivered that has left the last link at `arrived`; virtual seconds."""
        delay_s = next(self._laws[source]) if source in self._laws else 0.0
        self._last[source] = max(self._last[source], arrived + delay_s + more_s)
        return self._last[source]


class Shaping(ABC):
    """What happens to one node's messages; times in virtual seconds."""

    piece_bytes: int | None = None  # the largest message that it can treat well; None: it does not matter

    @abstractmethod
    def leaving(self, to: str, size: int) -> AbstractAsyncContextManager[Passage]:
        """A context that is entered when the message is on its way; within, it must be handed over."""

    @abstractmethod
    async def entering(self, source: str, message: Passage, size: int) -> float:
        """When to deliver a message; returns when the next one of this sender may come in."""


@dataclass(frozen=True)
class Ports:
    """What a node's messages pass."""

    uplink: Port
    downlink: Port
    pipes: Sequence[Port] = ()  # in the network's order; shared with other nodes


class FluidLink(Shaping):
    """One node's link, and its way into the pipes behind it.

    Of the messages to one node only one waits at a port, the others behind it: so a port serves pairs of nodes in turn,
    as it would serve TCP flows. A new rate holds for messages that are not yet on the link.
    """

    def __init__(
        self,
        node: str,
        ports: Ports,
        network: Network,
        seed: int,
        clock: Clock,
        conditions: Conditions | None = None,
        piece_bytes: int = QUANTUM_BYTES,
    ) -> None:
        self.piece_bytes = piece_bytes
        self._node = node
        self._ports = ports
        self._network = network
        self._clock = clock
        self._conditions = conditions or Conditions()
        self._delays = Delays(node, network, seed)
        self._declared: dict[Direction, float] = {
            "uplink": ports.uplink.bytes_per_s,
            "downlink": ports.downlink.bytes_per_s,
        }
        self._out, self._in = asyncio.Lock(), asyncio.Lock()
        self._targets: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sources: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pipes: dict[str, tuple[Port, ...]] = {}  # by target
        self._conditions.heed(self._adapt)

    @asynccontextmanager
    async def leaving(self, to: str, size: int) -> AsyncIterator[Passage]:
        async with self._targets[to]:
            await self._conditions.together(self._node, to)
            # Whoever sends to another node at this moment is not behind this node's next message.
            await asyncio.sleep(0)
            now = self._clock.now()
            passage = await self._through(self._ports.uplink, self._out, Passage(now, now), size)
            await self._clock.sleep_until(passage.begins)
            for pipe in self._through_pipes(to):
                passage = pipe.carry(passage, size)
                await self._clock.sleep_until(passage.begins)
            yield passage

    async def entering(self, source: str, message: Passage, size: int) -> float:
        async with self._sources[source]:
            arrived = await self._through(self._ports.downlink, self._in, message, size)
            return self._delays.due(source, arrived.ends, self._conditions.delay_s(source, self._node))

    async def _through(self, port: Port, turn: asyncio.Lock, message: Passage, size: int) -> Passage:
        """Wait until a port of this node is free: only then is it known how fast it will be."""
        async with turn:
            await self._clock.sleep_until(port.free_at)
            return port.carry(message, size)

    def _through_pipes(self, to: str) -> tuple[Port, ...]:
        if to not in self._pipes:
            numbered = zip(self._network.pipes, self._ports.pipes, strict=True)
            self._pipes[to] = tuple(port for pipe, port in numbered if pipe.carries(self._node, to))
        return self._pipes[to]

    def _adapt(self) -> None:
        """An event has changed this node's link, or another's."""
        for direction, declared in self._declared.items():
            changed = self._conditions.rate_bps(self._node, direction)
            port: Port = getattr(self._ports, direction)
            port.bytes_per_s = declared if changed is None else goodput(changed)


class DelayLine(Shaping):
    """Delays and their variation alone; the kernel does the rest."""

    def __init__(self, node: str, network: Network, seed: int, clock: Clock) -> None:
        self._clock = clock
        self._delays = Delays(node, network, seed)

    @asynccontextmanager
    async def leaving(self, to: str, size: int) -> AsyncIterator[Passage]:  # noqa: ARG002 - nothing holds it up
        yield Passage(self._clock.now(), self._clock.now())

    async def entering(self, source: str, message: Passage, size: int) -> float:  # noqa: ARG002
        return self._delays.due(source, self._clock.now())
