"""What does a message cost on this host, and how fast is a link of it? Two processes measure it as nodes would send.

One asks and one answers, over a transport of nodes. The engine that starts them shapes the link between them or
not, and opens the gate when it is as it should be.
"""

import asyncio
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from services.cluster.addresses import Address
from services.cluster.fluid_link import Port, goodput
from services.cluster.network import Network
from services.runtime.clock import WallClock, precise_event_loop
from services.runtime.control import OPEN_GATE_SIGNAL
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag
from services.scenario.scenario import TransportName
from services.schema.component import Record
from services.transport.planes import DATA_PLANES
from services.transport.shaping import FluidLinkShaping, NodeLinks
from services.transport.wired import SocketTransport

ASKS, ANSWERS = "asks", "answers"  # the two nodes
WARM_UPS, ROUND_TRIPS = 50, 400
SHAPED_S = 1.5  # of sending at the declared rate
UNSHAPED_BYTES = 256 << 20
BULK, BOTH = WARM_UPS + ROUND_TRIPS, WARM_UPS + ROUND_TRIPS + 1  # steps: a transport forgets older ones
PATIENCE_S = 60.0
SUMMED = 1_000_000  # entries, as many as a small model has
SUMS = 20


class Measured(Record):
    """What two nodes found; wall seconds, everything of both nodes together."""

    round_trip_s: float  # of a message without payload, median
    message_cpu_s: float  # CPU time of sending and receiving one
    byte_cpu_s: float  # beside that, per payload byte in large messages
    rate_bps: float  # payload of one direction
    both_bps: float | None = None  # payload of both directions at once; None when the link was shaped
    sum_s: float  # per byte of adding one vector to another


@dataclass(frozen=True)
class Task:
    """What one of the two nodes does."""

    name: str
    addresses: dict[str, Address]
    secrets: Path
    rate_bps: float | None  # of the link; None: not shaped
    transport: TransportName  # that carries what they send
    by_transport: bool  # whether the transport shapes it, because the kernel does not

    @property
    def peer(self) -> str:
        """The other node."""
        return ANSWERS if self.name == ASKS else ASKS


def measure(task: Task) -> Measured | None:
    """Live as one of the two; the one that asks knows the result."""
    with asyncio.Runner(loop_factory=precise_event_loop) as runner:
        return runner.run(_measure(task))


async def _measure(task: Task) -> Measured | None:
    clock = WallClock()
    ports = NodeLinks(Port(goodput(task.rate_bps)), Port(goodput(task.rate_bps)))
    link = FluidLinkShaping(task.name, ports, Network(), 0, clock) if task.by_transport else None
    identity = NodeIdentity.read(task.name, task.secrets)
    transport = DATA_PLANES[task.transport](task.addresses, identity, clock, PATIENCE_S, PATIENCE_S, link)
    async with transport:
        await transport.connect([task.peer])
        return await (_ask(transport, task) if task.name == ASKS else _answer(transport, task))


async def _ask(transport: SocketTransport, task: Task) -> Measured:
    await _gate()
    await _ping(transport, range(WARM_UPS))
    trips_s, message_cpu_s = await _ping(transport, range(WARM_UPS, WARM_UPS + ROUND_TRIPS))
    pieces, before = _pieces(transport, task), _cpu_s()
    await _send(transport, ANSWERS, pieces)
    told = await transport.receive(ANSWERS, MessageTag(BULK, MessageKind.TOTAL))
    sent, (elapsed_s, its_cpu_s) = pieces * transport.max_piece_bytes, np.frombuffer(told.data, np.float64)
    cpu_s = _cpu_s() - before + its_cpu_s
    return Measured(
        round_trip_s=median(trips_s),
        message_cpu_s=message_cpu_s,
        byte_cpu_s=max(0.0, cpu_s - pieces * message_cpu_s) / sent,
        rate_bps=8 * (sent - transport.max_piece_bytes) / elapsed_s,
        both_bps=await _both(transport, ANSWERS, pieces) if task.rate_bps is None else None,
        sum_s=_summing_s(),
    )


async def _ping(transport: SocketTransport, steps: range) -> tuple[list[float], float]:
    """Round trips in seconds, and the CPU time that both nodes need for one message."""
    trips_s, before = [], _cpu_s()
    for step in steps:
        started = time.perf_counter()
        await transport.send(ANSWERS, Message(MessageTag(step, MessageKind.PUSH)))
        reply = await transport.receive(ANSWERS, MessageTag(step, MessageKind.REPLY))
        trips_s.append(time.perf_counter() - started)
    return trips_s, (_cpu_s() - before + reply.update_s) / (2 * len(steps))


async def _answer(transport: SocketTransport, task: Task) -> None:
    before = 0.0
    for step in range(WARM_UPS + ROUND_TRIPS):
        if step == WARM_UPS:
            before = _cpu_s()
        await transport.receive(ASKS, MessageTag(step, MessageKind.PUSH))
        await transport.send(ASKS, Message(MessageTag(step, MessageKind.REPLY), update_s=_cpu_s() - before))
    before = _cpu_s()
    elapsed_s = await _receive(transport, ASKS, _pieces(transport, task))
    told = np.array([elapsed_s, _cpu_s() - before]).tobytes()
    await transport.send(ASKS, Message(MessageTag(BULK, MessageKind.TOTAL), told))
    if task.rate_bps is None:
        await _both(transport, ASKS, _pieces(transport, task))


async def _gate() -> None:
    """Return when the engine says that the link is as it should be."""
    opened = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(OPEN_GATE_SIGNAL, opened.set)
    print("ready", flush=True)  # noqa: T201 - the engine reads it
    async with asyncio.timeout(PATIENCE_S):
        await opened.wait()


async def _both(transport: SocketTransport, peer: str, pieces: int) -> float:
    """Send and receive at once; payload bit/s of both directions together."""
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(_send(transport, peer, pieces, step=BOTH))
        group.create_task(_receive(transport, peer, pieces, step=BOTH))
    return 2 * 8 * pieces * transport.max_piece_bytes / (time.perf_counter() - started)


async def _send(transport: SocketTransport, peer: str, pieces: int, step: int = BULK) -> None:
    data = bytes(transport.max_piece_bytes)
    for piece in range(pieces):
        await transport.send(peer, Message(MessageTag(step, MessageKind.PARTIAL_SUM, 0, piece), data))


async def _receive(transport: SocketTransport, peer: str, pieces: int, step: int = BULK) -> float:
    """Seconds from the first piece to the last."""
    await transport.receive(peer, MessageTag(step, MessageKind.PARTIAL_SUM, 0, 0))
    started = time.perf_counter()
    for piece in range(1, pieces):
        await transport.receive(peer, MessageTag(step, MessageKind.PARTIAL_SUM, 0, piece))
    return time.perf_counter() - started


def _pieces(transport: SocketTransport, task: Task) -> int:
    size = UNSHAPED_BYTES if task.rate_bps is None else goodput(task.rate_bps) * SHAPED_S
    return max(4, round(size / transport.max_piece_bytes))


def _summing_s() -> float:
    """Seconds per byte of adding float32 vectors, as servers and rings do."""
    total, other = np.zeros(SUMMED, np.float32), np.ones(SUMMED, np.float32)
    taken = []
    for _ in range(SUMS):
        started = time.perf_counter()
        np.add(total, other, out=total)
        taken.append(time.perf_counter() - started)
    return median(taken) / total.nbytes


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
