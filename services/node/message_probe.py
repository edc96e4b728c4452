"""Measurement of the cost of a message between two node processes.

The cost is that on this host; the rate of the link between the nodes is measured as well. The requester sends requests,
the responder replies, over a transport of nodes. The engine starts both processes, shapes the link between them if a
rate is declared, and then opens the start gate.
"""

import asyncio
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from services.cluster.addresses import Address
from services.cluster.links.fluid_link import RateLimiter, to_goodput_bytes_per_s
from services.cluster.network import Network
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.control import OPEN_START_GATE_SIGNAL
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag
from services.scenario.run_settings import TransportName
from services.schema.component import FrozenRecord
from services.transport.data_planes import DATA_PLANES
from services.transport.shaping import FluidModelLinkShaping, NodeLinks
from services.transport.socket_transport import SocketTransport

REQUESTER, RESPONDER = "requester", "responder"  # names of the two nodes
WARM_UP_ROUND_TRIPS, ROUND_TRIPS = 50, 400
SHAPED_SEND_S = 1.5  # seconds of sending at the declared rate
UNSHAPED_SEND_BYTES = 256 << 20
# Step numbers of the bulk transfers. They are larger than those of the round trips: a transport forgets older steps.
ONE_WAY_STEP, BOTH_WAYS_STEP = WARM_UP_ROUND_TRIPS + ROUND_TRIPS, WARM_UP_ROUND_TRIPS + ROUND_TRIPS + 1
TIMEOUT_S = 60.0
SUMMED_ENTRIES = 1_000_000  # length of the vectors, as of a small model
SUM_REPEATS = 20


class MessageTimesAndRates(FrozenRecord):
    """Measured cost of a message between two nodes, in wall and CPU seconds.

    The CPU seconds are those of both nodes together.
    """

    round_trip_s: float  # median of messages without payload
    message_cpu_s: float  # CPU time to send and receive one message
    byte_cpu_s: float  # additional CPU time per payload byte of large messages
    rate_bps: float  # payload rate of one direction
    both_bps: float | None = None  # payload rate of both directions at once; None when the link was shaped
    sum_s: float  # seconds per byte to add one vector to another


@dataclass(frozen=True)
class MessageProbeNodeSettings:
    """Settings of one of the two node processes that measure the cost of a message."""

    node_name: str
    addresses: dict[str, Address]
    secrets_folder: Path
    link_rate_bps: float | None  # None: the link is not shaped
    transport_name: TransportName  # of the transport under measurement
    is_shaped_by_transport: bool  # whether the transport shapes the link; otherwise the kernel does

    @property
    def peer_name(self) -> str:
        """Name of the other node in the measurement of the cost of messages."""
        return RESPONDER if self.node_name == REQUESTER else REQUESTER


def measure_message_timing(probe_task: MessageProbeNodeSettings) -> MessageTimesAndRates | None:
    """Measure the cost of messages as one of two nodes.

    Return None in the node that only replies.
    """
    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        return runner.run(_run_message_probe_node(probe_task))


async def _run_message_probe_node(probe_task: MessageProbeNodeSettings) -> MessageTimesAndRates | None:
    clock = WallClock()
    bytes_per_s = to_goodput_bytes_per_s(probe_task.link_rate_bps)
    ports = NodeLinks(RateLimiter(bytes_per_s), RateLimiter(bytes_per_s))
    link = (
        FluidModelLinkShaping(probe_task.node_name, ports, Network(), 0, clock)
        if probe_task.is_shaped_by_transport
        else None
    )
    identity = NodeIdentity.read(probe_task.node_name, probe_task.secrets_folder)
    transport = DATA_PLANES[probe_task.transport_name](
        probe_task.addresses, identity, clock, TIMEOUT_S, TIMEOUT_S, link
    )
    async with transport:
        await transport.connect([probe_task.peer_name])
        return await (
            _probe_message_cost(transport, probe_task)
            if probe_task.node_name == REQUESTER
            else _answer_probes(transport, probe_task)
        )


async def _probe_message_cost(transport: SocketTransport, probe_task: MessageProbeNodeSettings) -> MessageTimesAndRates:
    await _wait_for_start_signal()
    await _measure_message_rtts(transport, range(WARM_UP_ROUND_TRIPS))
    round_trips_s, message_cpu_s = await _measure_message_rtts(
        transport, range(WARM_UP_ROUND_TRIPS, WARM_UP_ROUND_TRIPS + ROUND_TRIPS)
    )
    piece_count, cpu_before_s = _count_transfer_pieces(transport, probe_task), _read_own_cpu_s()
    await _send_pieces(transport, RESPONDER, piece_count)
    reply = await transport.receive(RESPONDER, MessageTag(ONE_WAY_STEP, MessageKind.TOTAL))
    elapsed_s, responder_cpu_s = np.frombuffer(reply.data, np.float64)
    sent_bytes = piece_count * transport.max_piece_bytes
    cpu_s = _read_own_cpu_s() - cpu_before_s + responder_cpu_s
    both_bps = (
        await _measure_two_way_sum_bps(transport, RESPONDER, piece_count) if probe_task.link_rate_bps is None else None
    )
    return MessageTimesAndRates(
        round_trip_s=median(round_trips_s),
        message_cpu_s=message_cpu_s,
        byte_cpu_s=max(0.0, cpu_s - piece_count * message_cpu_s) / sent_bytes,
        rate_bps=8 * (sent_bytes - transport.max_piece_bytes) / elapsed_s,
        both_bps=both_bps,
        sum_s=_measure_vector_sum_s_per_byte(),
    )


async def _measure_message_rtts(transport: SocketTransport, round_trip_numbers: range) -> tuple[list[float], float]:
    """Return round-trip times of messages in seconds, and the CPU seconds per message.

    The CPU seconds are those of both nodes together.
    """
    round_trips_s, cpu_before_s = [], _read_own_cpu_s()
    for step in round_trip_numbers:
        started_s = time.perf_counter()
        await transport.send(RESPONDER, Message(MessageTag(step, MessageKind.PUSH)))
        reply = await transport.receive(RESPONDER, MessageTag(step, MessageKind.REPLY))
        round_trips_s.append(time.perf_counter() - started_s)
    return round_trips_s, (_read_own_cpu_s() - cpu_before_s + reply.update_s) / (2 * len(round_trip_numbers))


async def _answer_probes(transport: SocketTransport, probe_task: MessageProbeNodeSettings) -> None:
    """Reply to all requests of the measurement, then receive the large transfers.

    A reply contains the CPU seconds that this process has used so far.
    """
    cpu_before_s = 0.0
    for step in range(WARM_UP_ROUND_TRIPS + ROUND_TRIPS):
        if step == WARM_UP_ROUND_TRIPS:
            cpu_before_s = _read_own_cpu_s()
        await transport.receive(REQUESTER, MessageTag(step, MessageKind.PUSH))
        await transport.send(
            REQUESTER, Message(MessageTag(step, MessageKind.REPLY), update_s=_read_own_cpu_s() - cpu_before_s)
        )
    cpu_before_s = _read_own_cpu_s()
    elapsed_s = await _receive_pieces(transport, REQUESTER, _count_transfer_pieces(transport, probe_task))
    results = np.array([elapsed_s, _read_own_cpu_s() - cpu_before_s]).tobytes()
    await transport.send(REQUESTER, Message(MessageTag(ONE_WAY_STEP, MessageKind.TOTAL), results))
    if probe_task.link_rate_bps is None:
        await _measure_two_way_sum_bps(transport, REQUESTER, _count_transfer_pieces(transport, probe_task))


async def _wait_for_start_signal() -> None:
    """Wait for the engine's signal that the link between the two nodes is set up."""
    gate_opened = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(OPEN_START_GATE_SIGNAL, gate_opened.set)
    print("ready", flush=True)  # noqa: T201 - the engine waits for this line
    async with asyncio.timeout(TIMEOUT_S):
        await gate_opened.wait()


async def _measure_two_way_sum_bps(transport: SocketTransport, peer_name: str, piece_count: int) -> float:
    """Send and receive vectors at the same time, to measure the rate in both directions.

    Return the payload rate of both directions together, in bit/s.
    """
    started_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(_send_pieces(transport, peer_name, piece_count, step=BOTH_WAYS_STEP))
        group.create_task(_receive_pieces(transport, peer_name, piece_count, step=BOTH_WAYS_STEP))
    return 2 * 8 * piece_count * transport.max_piece_bytes / (time.perf_counter() - started_s)


async def _send_pieces(transport: SocketTransport, peer_name: str, piece_count: int, step: int = ONE_WAY_STEP) -> None:
    data = bytes(transport.max_piece_bytes)
    for piece in range(piece_count):
        await transport.send(peer_name, Message(MessageTag(step, MessageKind.PARTIAL_SUM, 0, piece), data))


async def _receive_pieces(transport: SocketTransport, peer: str, piece_count: int, step: int = ONE_WAY_STEP) -> float:
    """Receive all pieces of a bulk transfer, and return the seconds from the first piece to the last."""
    await transport.receive(peer, MessageTag(step, MessageKind.PARTIAL_SUM, 0, 0))
    started_s = time.perf_counter()
    for piece in range(1, piece_count):
        await transport.receive(peer, MessageTag(step, MessageKind.PARTIAL_SUM, 0, piece))
    return time.perf_counter() - started_s


def _count_transfer_pieces(transport: SocketTransport, probe_task: MessageProbeNodeSettings) -> int:
    """Return the number of messages in a bulk transfer that measures a link's rate."""
    rate_bps = probe_task.link_rate_bps
    send_bytes = UNSHAPED_SEND_BYTES if rate_bps is None else to_goodput_bytes_per_s(rate_bps) * SHAPED_SEND_S
    return max(4, round(send_bytes / transport.max_piece_bytes))


def _measure_vector_sum_s_per_byte() -> float:
    """Measure and return the seconds per byte for adding two float32 vectors, as servers and ring all-reduce do."""
    total, addend = np.zeros(SUMMED_ENTRIES, np.float32), np.ones(SUMMED_ENTRIES, np.float32)
    durations_s = []
    for _ in range(SUM_REPEATS):
        started_s = time.perf_counter()
        np.add(total, addend, out=total)
        durations_s.append(time.perf_counter() - started_s)
    return median(durations_s) / total.nbytes


def _read_own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
