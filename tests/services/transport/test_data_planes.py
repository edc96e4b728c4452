"""Every data plane on loopback: authentication of senders, delivery of messages, and timing."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np
import pytest

from compose.runs.certificates import issue_certificates
from services.cluster.addresses import Address
from services.cluster.links.fluid_link import RateLimiter, to_goodput_bytes_per_s
from services.cluster.network import Network, NetworkPath
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.scenario.recovery import RecoverySettings
from services.schema.errors import AuthenticationError, DeadlineExceeded, NetworkError, PeerUnreachable
from services.strategies.switching.state_transfer import StrategySwitchTimeout, send_model_vectors
from services.transport.data_planes import DATA_PLANES
from services.transport.epoch_transport import begin_membership_epoch, first_epoch_transport
from services.transport.grpc.channels import open_channel, translate_grpc_errors
from services.transport.grpc.data_plane import IDENTITY_METADATA_KEY, SEND_METHOD, GrpcTransport
from services.transport.shaping import FluidModelLinkShaping, NodeLinks, PathDelayShaping
from services.transport.socket_transport import SocketTransport
from services.transport.streams.received_streams import STREAM_ID_BYTES, StreamOpening
from services.transport.tcp import tls
from services.transport.tcp.data_plane import TcpTransport
from services.transport.tcp.sender import open_connection
from services.wire.data_pb2 import StreamReceipt

Transports: TypeAlias = dict[str, SocketTransport]
Exchange: TypeAlias = Callable[[Transports], Awaitable[Any]]
RunOnNodes: TypeAlias = Callable[..., Any]

TAG = MessageTag(0, MessageKind.PUSH)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NodeIdentity]:
    """Three nodes of one run; and, as `intruder`, a node of another run that is also named `a`."""
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    issue_certificates("this-run", ("a", "b", "c"), ours)
    issue_certificates("other-run", ("a",), theirs)
    return {name: NodeIdentity.read(name, ours / name) for name in ("a", "b", "c")} | {
        "intruder": NodeIdentity.read("a", theirs / "a")
    }


@pytest.fixture
def addresses() -> dict[str, Address]:
    """Free ports of this host."""
    sockets = [socket.socket() for _ in range(3)]
    for free_socket in sockets:
        free_socket.bind(("127.0.0.1", 0))
    ports = [free_socket.getsockname()[1] for free_socket in sockets]
    for free_socket in sockets:
        free_socket.close()
    return {name: Address(host="127.0.0.1", port=port) for name, port in zip("abc", ports, strict=True)}


def make_link_shaping(name: str, rate_bps: float, clock: WallClock) -> FluidModelLinkShaping:
    """Return the shaping of a link that has this rate in both directions."""
    return FluidModelLinkShaping(
        name,
        NodeLinks(RateLimiter(to_goodput_bytes_per_s(rate_bps)), RateLimiter(to_goodput_bytes_per_s(rate_bps))),
        Network(),
        0,
        clock,
    )


@pytest.fixture(params=DATA_PLANES.values(), ids=DATA_PLANES)
def plane(request: pytest.FixtureRequest) -> type[SocketTransport]:
    """Every data plane that `DATA_PLANES` lists."""
    plane_class: type[SocketTransport] = request.param
    return plane_class


async def open_stream_as(
    plane: type[SocketTransport], address: Address, proof: bytes | None, tls_identity: NodeIdentity | None = None
) -> None:
    """Open a stream to b with this proof and this identity for TLS; raise an error if b refuses it."""
    if plane is GrpcTransport:
        async with open_channel(address, "b", tls_identity) as channel:
            metadata = () if proof is None else ((IDENTITY_METADATA_KEY, proof),)
            async with translate_grpc_errors("b"):
                await channel.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)(metadata=metadata, timeout=2.0)
    else:
        context = None if tls_identity is None else tls.make_client_tls_context(tls_identity)
        opening = StreamOpening(bytes(STREAM_ID_BYTES), is_reopened=False)
        (await open_connection(address, "b", context, proof or b"", opening)).sender.close()


def break_off(node: SocketTransport) -> None:
    """Close the stream to b without an end message and stop listening, as happens when a process dies."""
    if isinstance(node, GrpcTransport):
        node._streams["b"].call.cancel()
    if isinstance(node, TcpTransport):
        node._server.close()
        node._streams["b"].abort()


@pytest.fixture
def run_on_nodes(
    plane: type[SocketTransport], identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> RunOnNodes:
    """Return a function that runs `exchange` with the transports of a and b and returns its result; c never starts."""

    def run(
        exchange: Exchange,
        *,
        rate_bps: float | None = None,
        delays: Network | None = None,
        timeout_s: float = 5.0,
        **options: Any,
    ) -> Any:
        async def main() -> Any:
            clock = WallClock()
            links: dict[str, Any] = {
                name: None if rate_bps is None else make_link_shaping(name, rate_bps, clock) for name in ("a", "b")
            }
            links |= {name: PathDelayShaping(name, delays, 0, clock) for name in "ab" if delays}
            transports = {
                name: plane(addresses, identities[name], clock, timeout_s, 30.0, shaping, **options)
                for name, shaping in links.items()
            }
            for transport in transports.values():
                await transport.start()
            try:
                return await exchange(transports)
            finally:
                await asyncio.gather(*(transport.stop() for transport in transports.values()))

        with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
            return runner.run(main())

    return run


@pytest.mark.parametrize("protection", ["signed", "authenticated", "tls"])
def test_a_large_vector_arrives_unchanged(run_on_nodes: RunOnNodes, protection: str) -> None:
    """The 3.2 MB need several messages; both directions are used at once, with one open stream per direction."""
    vectors = {name: np.random.default_rng(seed).standard_normal(400_001) for seed, name in enumerate("ab")}

    async def exchange(nodes: Transports) -> dict[str, Any]:
        async def exchange_vectors(node: str, peer: str) -> Any:
            received = np.empty(400_001)
            sending = asyncio.create_task(
                send_vector(nodes[node], peer, Message(TAG, version=7, samples=3), vectors[node])
            )
            first = await nodes[node].receive(peer, TAG)
            await receive_remaining_pieces(nodes[node], peer, first, received)
            await sending
            return received, first, nodes[node].traffic

        return {"a": await asyncio.gather(exchange_vectors("a", "b"), exchange_vectors("b", "a"))}

    (at_a, first, traffic), (at_b, _, _) = run_on_nodes(exchange, protection=protection)["a"]

    assert at_a.tobytes() == vectors["b"].tobytes()
    assert at_b.tobytes() == vectors["a"].tobytes()
    assert (first.version, first.samples) == (7, 3)
    assert (traffic.payload_bytes, traffic.messages) == (400_001 * 8, 4)
    assert 0 < traffic.framing_bytes < 4 * 140


class CountingProxy:
    """Forwards connections to an address and counts the bytes in the direction of the connection."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.forwarded_bytes = 0

    async def start(self) -> Address:
        """Listen on a free port and return its address."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return Address(host="127.0.0.1", port=self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, and close both sockets of each connection before the event loop ends."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the loop closes the sockets of aborted connections in its next turn

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, forward_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += [writer, forward_writer]
        self._tasks += [
            asyncio.create_task(self._copy(reader, forward_writer, counts=True)),
            asyncio.create_task(self._copy(back_reader, writer, counts=False)),
        ]

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        while data := await reader.read(1 << 16):
            self.forwarded_bytes += len(data) * counts
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("is_shaped", [False, True], ids=["kernel", "emulated links"])
def test_messages_of_a_declared_size_have_as_many_bytes_on_the_network(
    plane: type[SocketTransport], identities: dict[str, NodeIdentity], addresses: dict[str, Address], is_shaped: bool
) -> None:
    """Links of the kernel carry bytes, so they are sent. Emulated links know the size; sending it would cost CPU time.

    In both cases the declared size is counted, and the vector is split into pieces of the declared size.
    """
    vector, scale = np.random.default_rng(0).standard_normal(40_001).astype(np.float32), 60.0

    async def main() -> tuple[Any, Any, int]:
        clock, proxy = WallClock(), CountingProxy(addresses["b"])
        views = {"a": addresses | {"b": await proxy.start()}, "b": addresses}
        transports = {
            name: plane(
                views[name], identities[name], clock, 20.0, 30.0,
                make_link_shaping(name, 1e9, clock) if is_shaped else None, payload_scale=scale,
            )
            for name in "ab"
        }  # fmt: skip
        for transport in transports.values():
            await transport.start()
        received = np.empty_like(vector)
        sending = asyncio.create_task(send_vector(transports["a"], "b", Message(TAG), vector))
        first = await transports["b"].receive("a", TAG)
        await receive_remaining_pieces(transports["b"], "a", first, received)
        await sending
        await asyncio.gather(*(transport.stop() for transport in transports.values()))
        await proxy.close()
        return received, transports["a"], proxy.forwarded_bytes

    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        received, sender, network_bytes = runner.run(main())

    declared_bytes = vector.nbytes * scale
    assert received.tobytes() == vector.tobytes()
    assert sender.traffic.payload_bytes == pytest.approx(declared_bytes, rel=1e-4)
    assert sender.traffic.messages == -(-vector.size // int(sender.max_piece_bytes / (4 * scale)))
    expected_bytes = vector.nbytes if is_shaped else declared_bytes
    assert network_bytes == pytest.approx(expected_bytes + sender.traffic.framing_bytes, rel=0.01, abs=5_000)


def test_connect_waits_for_a_receiver_that_does_not_listen_yet(
    plane: type[SocketTransport], identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """Nodes of a run start within a second of each other, in any order; the first message uses the open stream."""

    async def exchange() -> tuple[bool, int, bytes]:
        early, late = (plane(addresses, identities[name], WallClock(), 5.0, 30.0) for name in "ab")
        await early.start()
        connecting = asyncio.create_task(early.connect(["b"]))
        await asyncio.sleep(0.2)
        waited = not connecting.done()
        await late.start()
        async with asyncio.timeout(2.0):
            await connecting
        streams = list(early._streams.values())
        await early.send("b", Message(TAG, b"hello"))
        data = bytes((await late.receive("a", TAG)).data)
        reused = sum(before is after for before, after in zip(streams, early._streams.values(), strict=True))
        await asyncio.gather(early.stop(), late.stop())
        return waited, reused, data

    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        assert runner.run(exchange()) == (True, 1, b"hello")


def test_a_payload_is_written_to_the_buffer_of_its_receiver_or_to_new_memory(run_on_nodes: RunOnNodes) -> None:
    """gRPC always uses new memory. Other messages, and a copy of this one, must not be written to the buffer."""
    large, other = bytes(range(256)) * 1000, b"o" * 256_000

    async def exchange(nodes: Transports) -> tuple[bytes, bool, bytes, bytes]:
        buffer = memoryview(bytearray(len(large)))
        receiving = asyncio.create_task(nodes["b"].receive("a", TAG, buffer=buffer))
        await asyncio.sleep(0)
        for tag, data in (
            (MessageTag(0, MessageKind.PARTIAL_SUM), other),
            (TAG, large),
            (TAG, other),
            (MessageTag(1, MessageKind.PARTIAL_SUM), other),
        ):
            await nodes["a"].send("b", Message(tag, data))
        message = await receiving
        first, last = [await nodes["b"].receive("a", MessageTag(step, MessageKind.PARTIAL_SUM)) for step in (0, 1)]
        assert bytes(first.data) == bytes(last.data) == other
        return bytes(message.data), message.data is buffer, bytes(buffer), bytes(len(large))

    payload, in_buffer, written_buffer, zeros = run_on_nodes(exchange)

    assert payload == large
    assert written_buffer == (large if in_buffer else zeros)


def test_start_send_and_start_receive_transfer_the_same_messages_as_tasks(run_on_nodes: RunOnNodes) -> None:
    """Messages are large and small, and requested before or after they arrive; traffic counts all of them."""
    payloads = [b"", b"small", bytes(range(256)) * 40_000, b"behind it"]
    tags = [MessageTag(0, MessageKind.PUSH, 0, piece) for piece in range(len(payloads))]

    async def exchange(nodes: Transports) -> tuple[list[bytes], int]:
        received: list[Any] = []
        await nodes["a"].connect(["b"])
        requested_before = [nodes["b"].start_receive("a", tag, received.append) for tag in tags[:2]]
        sending = [nodes["a"].start_send("b", Message(tag, data)) for tag, data in zip(tags, payloads, strict=True)]
        await asyncio.gather(*(pending for pending in sending if pending is not None))
        await nodes["a"].send("b", Message(TAG._replace(step=1)))
        await nodes["b"].receive("a", TAG._replace(step=1))
        requested_after = [nodes["b"].start_receive("a", tag, received.append) for tag in tags[2:]]
        assert (None not in requested_before, requested_after) == (True, [None, None])
        return [bytes(message.data) for message in received], nodes["a"].traffic.messages

    assert run_on_nodes(exchange) == (payloads, len(payloads) + 1)


def test_start_receive_reports_errors_to_its_callback(run_on_nodes: RunOnNodes) -> None:
    """Errors are a deadline that has passed and a peer that has gone; a cancelled receive reports none."""

    async def exchange(nodes: Transports) -> list[type[BaseException]]:
        outcomes: list[Any] = []
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        (cancelled_receive := nodes["b"].start_receive("a", MessageTag(1, MessageKind.PUSH), outcomes.append)).cancel()  # type: ignore[union-attr]
        nodes["b"].start_receive("a", MessageTag(2, MessageKind.PUSH), outcomes.append)
        await asyncio.sleep(0.8)
        nodes["b"].start_receive("a", MessageTag(3, MessageKind.PUSH), outcomes.append)
        break_off(nodes["a"])
        await asyncio.sleep(0.4)
        nodes["a"]._streams.clear()
        cancelled_receive.cancel()  # type: ignore[union-attr] # once more
        nodes["b"].start_receive("a", MessageTag(4, MessageKind.PUSH), outcomes.append)
        return [type(outcome) for outcome in outcomes]

    assert run_on_nodes(exchange, timeout_s=0.6) == [DeadlineExceeded, PeerUnreachable, PeerUnreachable]


def test_a_buffer_of_another_length_is_not_written_to(run_on_nodes: RunOnNodes) -> None:
    """The receiver then sees that the payload does not have the expected length."""

    async def exchange(nodes: Transports) -> tuple[bytes, bytes]:
        buffer = memoryview(bytearray(5))
        receiving = asyncio.create_task(nodes["b"].receive("a", TAG, buffer=buffer))
        await asyncio.sleep(0)
        await nodes["a"].send("b", Message(TAG, b"hello, you"))
        return bytes((await receiving).data), bytes(buffer)

    assert run_on_nodes(exchange) == (b"hello, you", bytes(5))


def test_a_second_copy_on_the_wire_is_dropped(run_on_nodes: RunOnNodes) -> None:
    """Sending a message again is harmless, because its tag identifies it."""

    async def exchange(nodes: Transports) -> list[bytes]:
        for tag in (TAG, TAG, TAG._replace(step=1), TAG, TAG._replace(step=1)):
            await nodes["a"].send("b", Message(tag, repr(tag).encode()))
        await nodes["a"].send("b", Message(MessageTag(1, MessageKind.LEAVE)))
        await nodes["b"].receive("a", MessageTag(1, MessageKind.LEAVE))
        received = [await nodes["b"].receive("a", tag) for tag in (TAG, TAG._replace(step=1))]
        assert not nodes["b"]._mailbox._unclaimed
        return [bytes(message.data) for message in received]

    assert run_on_nodes(exchange) == [repr(TAG).encode(), repr(TAG._replace(step=1)).encode()]


@pytest.mark.parametrize("proof", ["none", "nonsense", "of another run", "for another node"])
def test_a_stream_without_a_valid_identity_is_refused(
    run_on_nodes: RunOnNodes,
    plane: type[SocketTransport],
    identities: dict[str, NodeIdentity],
    addresses: dict[str, Address],
    proof: str,
) -> None:
    """Any host can open a stream; only nodes of this run may send, and only to the node that their proof names."""
    proofs = {
        "none": None,
        "nonsense": b"\xffnonsense",
        "of another run": identities["intruder"].make_identity_proof("b"),
        "for another node": identities["a"].make_identity_proof("c"),
    }

    async def exchange(nodes: Transports) -> None:
        with pytest.raises(AuthenticationError, match=r"\bb\b.*: the stream"):
            await open_stream_as(plane, addresses["b"], proofs[proof])

    run_on_nodes(exchange)


def test_an_old_proof_is_refused(identities: dict[str, NodeIdentity], monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded beginning of a stream must not open another stream later."""
    proof = identities["a"].make_identity_proof("b")
    assert identities["b"].verify_identity_proof(proof) == "a"

    monkeypatch.setattr("services.runtime.identity.time", lambda: 4e9)

    with pytest.raises(AuthenticationError, match="too old"):
        identities["b"].verify_identity_proof(proof)


def test_tls_refuses_every_node_without_a_certificate_of_the_run(
    run_on_nodes: RunOnNodes,
    plane: type[SocketTransport],
    identities: dict[str, NodeIdentity],
    addresses: dict[str, Address],
) -> None:
    """Encryption protects nothing without checking the peer, and an intercepted proof must not be enough."""

    async def exchange(nodes: Transports) -> None:
        proof = identities["a"].make_identity_proof("b")
        await open_stream_as(plane, addresses["b"], proof, identities["a"]) if plane is TcpTransport else None
        for unknown_identity in (None, identities["intruder"]):
            with pytest.raises((AuthenticationError, PeerUnreachable, OSError)):
                await open_stream_as(plane, addresses["b"], proof, unknown_identity)

    run_on_nodes(exchange, protection="tls")


def test_sending_to_a_node_that_never_starts_ends_with_an_error_in_time(run_on_nodes: RunOnNodes) -> None:
    """No node may wait for ever for a node that never starts."""

    async def exchange(nodes: Transports) -> float:
        started = asyncio.get_running_loop().time()
        with pytest.raises((PeerUnreachable, DeadlineExceeded)):
            await nodes["a"].send("c", Message(TAG))
        nodes["a"]._streams.clear()
        return asyncio.get_running_loop().time() - started

    assert run_on_nodes(exchange, timeout_s=0.5) < 2.0


def test_receiving_from_a_silent_node_ends_with_an_error_in_time(run_on_nodes: RunOnNodes) -> None:
    """The deadline holds for receivers as for senders."""

    async def exchange(nodes: Transports) -> None:
        with pytest.raises(DeadlineExceeded, match=r"from a within 0\.3 s"):
            await nodes["b"].receive("a", TAG)

    run_on_nodes(exchange, timeout_s=0.3)


def test_a_stream_that_breaks_off_wakes_its_waiting_receiver(run_on_nodes: RunOnNodes) -> None:
    """A killed process closes its connections: the other nodes must notice this before a timeout."""

    async def exchange(nodes: Transports) -> float:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, break_off, nodes["a"])
        started = loop.time()
        with pytest.raises(PeerUnreachable, match="a broke off its"):
            await nodes["b"].receive("a", MessageTag(1, MessageKind.PUSH))
        nodes["a"]._streams.clear()
        return loop.time() - started

    assert run_on_nodes(exchange, timeout_s=20.0) < 2.0


@pytest.mark.parametrize("plane", [GrpcTransport], ids=["grpc"], indirect=True)
def test_a_grpc_stream_with_a_wrong_message_breaks_off_at_both_ends(run_on_nodes: RunOnNodes) -> None:
    """With TCP, the sender opens the stream again instead."""

    async def exchange(nodes: Transports) -> None:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        await nodes["a"]._streams["b"].call.write(b"no message")
        with pytest.raises(PeerUnreachable, match="a broke off its stream"):
            await nodes["b"].receive("a", MessageTag(1, MessageKind.PUSH))
        await nodes["a"]._streams["b"].call.code()  # waits until the error has arrived
        with pytest.raises(PeerUnreachable, match="the stream to b broke off: b refused it: "):
            await nodes["a"].send("b", Message(TAG))
        nodes["a"]._streams.clear()

    run_on_nodes(exchange)


@pytest.mark.parametrize("tolerates_lost_peers", [False, True])
def test_a_peer_that_was_lost_at_the_end_fails_only_a_node_that_needs_all_peers(
    run_on_nodes: RunOnNodes, *, tolerates_lost_peers: bool
) -> None:
    """A node that has finished its work, and whose trial goes on without lost nodes, must not report an error."""

    async def exchange(nodes: Transports) -> None:
        if tolerates_lost_peers:
            nodes["a"].tolerate_lost_peers()
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        await nodes["b"].abort()
        with nullcontext() if tolerates_lost_peers else pytest.raises(NetworkError):
            await nodes["a"].stop()
        nodes["a"]._streams.clear()

    run_on_nodes(exchange)


@pytest.mark.parametrize("has_returned", [False, True])
def test_a_node_that_is_done_waits_for_no_stream_of_a_lost_peer(
    run_on_nodes: RunOnNodes, *, has_returned: bool
) -> None:
    """A frozen node that was evicted keeps its connections open; a node that has returned may still send messages."""

    async def exchange(nodes: Transports) -> bool:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        nodes["b"].forget_lost_peers(["a"], 0, returned=["a"] if has_returned else [])
        stopping = asyncio.create_task(nodes["b"].stop())
        await asyncio.wait([stopping], timeout=2.0)
        is_stopped = stopping.done()
        nodes["a"].tolerate_lost_peers()
        await nodes["a"].stop()
        nodes["a"]._streams.clear()
        await stopping
        return is_stopped

    assert run_on_nodes(exchange) == (not has_returned)


def test_the_end_of_a_stream_without_messages_is_no_failure(run_on_nodes: RunOnNodes) -> None:
    """A restarted worker connects to its neighbours, and closes these streams when its membership epoch begins."""

    async def exchange(nodes: Transports) -> None:
        await nodes["a"].connect(["b"])
        receiving = asyncio.create_task(nodes["b"].receive("a", TAG))
        nodes["a"].forget_lost_peers(["b"], 0, returned=["b"])
        await asyncio.wait([receiving], timeout=0.5)
        assert not receiving.done()
        await nodes["a"].send("b", Message(TAG))
        await receiving

    run_on_nodes(exchange)


def test_sending_to_a_node_that_has_ended_raises_an_error(run_on_nodes: RunOnNodes) -> None:
    """The sender gets an error too when its stream is over."""

    async def exchange(nodes: Transports) -> None:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].abort()
        with pytest.raises(NetworkError):  # noqa: PT012 - which message fails depends on timing
            for step in range(1, 50):
                await nodes["a"].send("b", Message(TAG._replace(step=step)))
                await asyncio.sleep(0.01)
        nodes["a"]._streams.clear()

    run_on_nodes(exchange)


@pytest.mark.parametrize("sender", ["task", "no task", "no task, at once"])
def test_no_message_follows_an_incomplete_message(run_on_nodes: RunOnNodes, sender: str) -> None:
    """After a cancelled write, the receiver must not read the next message as the rest of a longer one."""

    async def exchange(nodes: Transports) -> bytes | None:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        large = Message(TAG._replace(step=1), bytes(64 << 20))
        writing = (
            asyncio.create_task(nodes["a"].send("b", large)) if sender == "task" else nodes["a"].start_send("b", large)
        )
        assert writing is not None
        if sender != "no task, at once":
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        try:
            await nodes["a"].send("b", Message(TAG._replace(step=2), b"whole"))
            return bytes((await nodes["b"].receive("a", TAG._replace(step=2))).data)
        except NetworkError:
            return None  # and `stop` raises no error

    assert run_on_nodes(exchange) in {b"whole", None}, "the message is complete, or the stream is over"


@pytest.mark.parametrize("ticks", range(1, 8))
def test_a_step_that_is_broken_off_in_the_first_epoch_leaves_the_stream_usable(
    run_on_nodes: RunOnNodes, ticks: int
) -> None:
    """The stream leads to a node that goes on after the loss of another one."""

    async def exchange(nodes: Transports) -> bytes:
        sender = first_epoch_transport(nodes["a"], RecoverySettings(on_failure="continue", checkpoint=None))
        await sender.send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        step = asyncio.create_task(sender.send("b", Message(TAG._replace(step=1), bytes(64 << 20))))
        for _ in range(ticks):  # of the event loop; after a few of them, the message is being written
            await asyncio.sleep(0)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        receiver = begin_membership_epoch(nodes["b"], 1, [], [])
        await begin_membership_epoch(sender, 1, [], []).send("b", Message(TAG, b"whole"))
        return bytes((await receiver.receive("a", TAG)).data)

    assert run_on_nodes(exchange) == b"whole"


def test_a_state_transfer_that_is_given_up_leaves_the_stream_usable(run_on_nodes: RunOnNodes) -> None:
    """Also in the middle of a message: all nodes continue as before, over the same stream."""
    vector = np.zeros(8 << 20)

    async def exchange(nodes: Transports) -> tuple[bytes, int]:
        nodes["a"].max_piece_bytes, switch_timeout = vector.nbytes, StrategySwitchTimeout(WallClock(), 0.0)
        await nodes["a"].connect(["b"])
        with pytest.raises(DeadlineExceeded, match="the strategy switch did not finish"):
            async with switch_timeout.cancel_block_at_deadline(switch_timeout.deadline_from_now_s):
                await send_model_vectors(nodes["a"], "b", 1, [vector, vector])
        await nodes["a"].send("b", Message(TAG, b"as before"))
        return bytes((await nodes["b"].receive("a", TAG)).data), nodes["a"].traffic.messages

    data, messages = run_on_nodes(exchange)

    assert data == b"as before"
    assert messages == 2, "no message starts after the current one"


def test_a_node_that_is_done_listens_until_its_peers_are_done(
    run_on_nodes: RunOnNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast asynchronous worker is done long before the servers are; its exit must not break their streams."""

    async def exchange(nodes: Transports) -> bytes:
        monkeypatch.setattr(nodes["b"], "_timeout_wall_s", 0.1)  # limits its own last messages, not the time it listens
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)  # the stream is accepted: a server that is stopping takes no new ones
        stopping = asyncio.create_task(nodes["b"].stop())
        await asyncio.sleep(0.5)
        await nodes["a"].send("b", Message(TAG._replace(step=1), b"still here"))
        await nodes["a"].stop()
        nodes["a"]._streams.clear()
        await stopping
        return bytes((await nodes["b"].receive("a", TAG._replace(step=1))).data)

    assert run_on_nodes(exchange) == b"still here"


@pytest.mark.wall_clock
def test_a_transfer_over_a_shaped_link_takes_the_time_of_its_rate(run_on_nodes: RunOnNodes) -> None:
    """A megabyte at 100 Mbit/s, with the headers of whole frames, takes as long as with tc."""
    vector = np.zeros(1_000_000, "uint8")

    async def exchange(nodes: Transports) -> float:
        await nodes["a"].send("b", Message(MessageTag(0, MessageKind.PARTIAL_SUM)))  # opens the stream
        await nodes["b"].receive("a", MessageTag(0, MessageKind.PARTIAL_SUM))
        loop = asyncio.get_running_loop()
        started = loop.time()
        sending = asyncio.create_task(send_vector(nodes["a"], "b", Message(TAG), vector))
        first = await nodes["b"].receive("a", TAG)
        await receive_remaining_pieces(nodes["b"], "a", first, vector.copy())
        await sending
        return loop.time() - started

    seconds = min(run_on_nodes(exchange, rate_bps=1e8) for _ in range(2))  # other load on this host may slow one

    assert seconds == pytest.approx(8e6 / (1e8 * 1448 / 1514), rel=0.05)


@pytest.mark.wall_clock
def test_delay_only_shaping_adds_the_delay_of_each_direction(run_on_nodes: RunOnNodes) -> None:
    """Used where the kernel can't delay: each direction has its own delay, keeps the order and loses no rate."""
    delays = Network(
        paths=(NetworkPath(source="a", target="b", delay_s=0.1), NetworkPath(source="b", target="a", delay_s=0.2))
    )

    async def exchange(nodes: Transports) -> list[float]:
        clock, times = WallClock(), []
        for source, target in ("ab", "ba", "ab"):
            tags = [MessageTag(len(times), MessageKind.PUSH, 0, piece) for piece in range(20)]
            started = clock.now()
            for tag in tags:
                await nodes[source].send(target, Message(tag, bytes(100_000)))
            for tag in tags:
                await nodes[target].receive(source, tag)
            times.append(clock.now() - started)
        return times

    assert run_on_nodes(exchange, delays=delays) == pytest.approx([0.1, 0.2, 0.1], abs=0.05)
