"""Every data plane on loopback: who may send, that everything arrives, and how fast."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from compose.runs.certificates import issue_certificates
from services.cluster.addresses import Address
from services.cluster.links.fluid_link import RateLimiter, goodput_bytes_per_s
from services.cluster.network import Network, NetworkPath
from services.runtime.clock import WallClock, precise_event_loop
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.errors import AuthenticationError, DeadlineExceeded, NetworkError, PeerUnreachable
from services.strategies.switching.state_transfer import StrategySwitchTimeout, send_model_vectors
from services.transport.data_planes import DATA_PLANES
from services.transport.grpc.channels import open_channel, translate_grpc_errors
from services.transport.grpc.data_plane import IDENTITY_METADATA_KEY, SEND_METHOD, GrpcTransport
from services.transport.shaping import DelayOnlyShaping, FluidLinkShaping, NodeLinks
from services.transport.socket_transport import SocketTransport
from services.transport.tcp import tls
from services.transport.tcp.data_plane import TcpTransport
from services.transport.tcp.sender import open_stream
from services.wire.data_pb2 import StreamReceipt

Transports: TypeAlias = dict[str, SocketTransport]
Talk: TypeAlias = Callable[[Transports], Awaitable[Any]]
Meet: TypeAlias = Callable[..., Any]

TAG = MessageTag(0, MessageKind.PUSH)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NodeIdentity]:
    """Three nodes of one run; and a node of another run that calls itself `a`, under `intruder`."""
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
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return {name: Address(host="127.0.0.1", port=port) for name, port in zip("abc", ports, strict=True)}


def link(name: str, rate_bps: float, clock: WallClock) -> FluidLinkShaping:
    """As fast in both directions."""
    return FluidLinkShaping(
        name,
        NodeLinks(RateLimiter(goodput_bytes_per_s(rate_bps)), RateLimiter(goodput_bytes_per_s(rate_bps))),
        Network(),
        0,
        clock,
    )


@pytest.fixture(params=DATA_PLANES.values(), ids=DATA_PLANES)
def plane(request: pytest.FixtureRequest) -> type[SocketTransport]:
    """Every member of the family; a new one stands in `DATA_PLANES`, and so here."""
    chosen: type[SocketTransport] = request.param
    return chosen


async def knock(
    plane: type[SocketTransport], address: Address, proof: bytes | None, tls_as: NodeIdentity | None = None
) -> None:
    """Open a stream to b as a stranger would, who has this proof and this identity for TLS; raises Refused."""
    if plane is GrpcTransport:
        async with open_channel(address, "b", tls_as) as line:
            metadata = () if proof is None else ((IDENTITY_METADATA_KEY, proof),)
            async with translate_grpc_errors("b"):
                await line.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)(metadata=metadata, timeout=2.0)
    else:
        context = None if tls_as is None else tls.make_client_tls_context(tls_as)
        (await open_stream(address, "b", context, proof or b"")).close()


def break_off(node: SocketTransport) -> None:
    """Close a stream to b as the end of a process does."""
    if isinstance(node, GrpcTransport):
        node._streams["b"].call.cancel()
    if isinstance(node, TcpTransport):
        node._streams["b"].sender_task.result().close()


@pytest.fixture
def meet(plane: type[SocketTransport], identities: dict[str, NodeIdentity], addresses: dict[str, Address]) -> Meet:
    """Lets `talk` use the transports of nodes a and b (c is never there); what it returns."""

    def run(
        talk: Talk, *, rate_bps: float | None = None, far: Network | None = None, timeout_s: float = 5.0, **options: Any
    ) -> Any:
        async def main() -> Any:
            clock = WallClock()
            links: dict[str, Any] = {
                name: None if rate_bps is None else link(name, rate_bps, clock) for name in ("a", "b")
            }
            links |= {name: DelayOnlyShaping(name, far, 0, clock) for name in "ab" if far}
            transports = {
                name: plane(addresses, identities[name], clock, timeout_s, 30.0, shaping, **options)
                for name, shaping in links.items()
            }
            for transport in transports.values():
                await transport.start()
            try:
                return await talk(transports)
            finally:
                await asyncio.gather(*(transport.stop() for transport in transports.values()))

        with asyncio.Runner(loop_factory=precise_event_loop) as runner:
            return runner.run(main())

    return run


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "tls"])
def test_a_large_vector_arrives_as_it_was_sent(meet: Meet, encrypt: bool) -> None:
    """Three megabytes and a bit: several messages, both ways at once, one open stream per direction."""
    vectors = {name: np.random.default_rng(seed).standard_normal(400_001) for seed, name in enumerate("ab")}

    async def talk(nodes: Transports) -> dict[str, Any]:
        async def one(me: str, other: str) -> Any:
            received = np.empty(400_001)
            sending = asyncio.create_task(
                send_vector(nodes[me], other, Message(TAG, version=7, samples=3), vectors[me])
            )
            first = await nodes[me].receive(other, TAG)
            await receive_remaining_pieces(nodes[me], other, first, received)
            await sending
            return received, first, nodes[me].traffic

        return {"a": await asyncio.gather(one("a", "b"), one("b", "a"))}

    (at_a, first, traffic), (at_b, _, _) = meet(talk, encrypt=encrypt)["a"]

    assert at_a.tobytes() == vectors["b"].tobytes()
    assert at_b.tobytes() == vectors["a"].tobytes()
    assert (first.version, first.samples) == (7, 3)
    assert (traffic.payload_bytes, traffic.messages) == (400_001 * 8, 4)
    assert 0 < traffic.framing_bytes < 4 * 100


def test_a_stream_opened_before_its_receiver_listens_is_there_once_it_does(
    plane: type[SocketTransport], identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """Nodes of a run start within a second of each other, in any order; the first message uses the open stream."""

    async def talk() -> tuple[bool, int, bytes]:
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

    with asyncio.Runner(loop_factory=precise_event_loop) as runner:
        assert runner.run(talk()) == (True, 1, b"hello")


def test_a_payload_comes_into_memory_that_its_receiver_has_lent(meet: Meet) -> None:
    """It may: over gRPC it comes in memory of its own. What else comes goes elsewhere, a copy of it too."""
    large, other = bytes(range(256)) * 1000, b"o" * 256_000

    async def talk(nodes: Transports) -> tuple[bytes, bool, bytes, bytes]:
        room = memoryview(bytearray(len(large)))
        taking = asyncio.create_task(nodes["b"].receive("a", TAG, buffer=room))
        await asyncio.sleep(0)
        for tag, data in (
            (MessageTag(0, MessageKind.PARTIAL_SUM), other),
            (TAG, large),
            (TAG, other),
            (MessageTag(1, MessageKind.PARTIAL_SUM), other),
        ):
            await nodes["a"].send("b", Message(tag, data))
        message = await taking
        first, last = [await nodes["b"].receive("a", MessageTag(step, MessageKind.PARTIAL_SUM)) for step in (0, 1)]
        assert bytes(first.data) == bytes(last.data) == other
        return bytes(message.data), message.data is room, bytes(room), bytes(len(large))

    found, lent, room, untouched = meet(talk)

    assert found == large
    assert room == (large if lent else untouched)


def test_who_is_no_task_sends_and_hears_the_same(meet: Meet) -> None:
    """Large and small, awaited before they come or asked for afterwards, and counted as ever."""
    payloads = [b"", b"small", bytes(range(256)) * 40_000, b"behind it"]
    tags = [MessageTag(0, MessageKind.PUSH, 0, piece) for piece in range(len(payloads))]

    async def talk(nodes: Transports) -> tuple[list[bytes], int]:
        came: list[Any] = []
        await nodes["a"].connect(["b"])
        awaited = [nodes["b"].start_receive("a", tag, came.append) for tag in tags[:2]]
        sending = [nodes["a"].start_send("b", Message(tag, data)) for tag, data in zip(tags, payloads, strict=True)]
        await asyncio.gather(*(each for each in sending if each is not None))
        await nodes["a"].send("b", Message(TAG._replace(step=1)))
        await nodes["b"].receive("a", TAG._replace(step=1))
        asked = [nodes["b"].start_receive("a", tag, came.append) for tag in tags[2:]]
        assert (None not in awaited, asked) == (True, [None, None])
        return [bytes(message.data) for message in came], nodes["a"].traffic.messages

    assert meet(talk) == (payloads, len(payloads) + 1)


def test_who_is_no_task_is_told_of_errors(meet: Meet) -> None:
    """Of time that has run out, and of a neighbour that is gone; not of what it waits for no more."""

    async def talk(nodes: Transports) -> list[type[BaseException]]:
        told: list[Any] = []
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        (given_up := nodes["b"].start_receive("a", MessageTag(1, MessageKind.PUSH), told.append)).cancel()  # type: ignore[union-attr]
        nodes["b"].start_receive("a", MessageTag(2, MessageKind.PUSH), told.append)
        await asyncio.sleep(0.5)
        nodes["b"].start_receive("a", MessageTag(3, MessageKind.PUSH), told.append)
        break_off(nodes["a"])
        await asyncio.sleep(0.1)
        nodes["a"]._streams.clear()
        given_up.cancel()  # type: ignore[union-attr] # once more
        nodes["b"].start_receive("a", MessageTag(4, MessageKind.PUSH), told.append)
        return [type(each) for each in told]

    assert meet(talk, timeout_s=0.3) == [DeadlineExceeded, PeerUnreachable, PeerUnreachable]


def test_memory_of_another_length_is_not_written_to(meet: Meet) -> None:
    """Whoever lends it then sees that the payload is not what was expected."""

    async def talk(nodes: Transports) -> tuple[bytes, bytes]:
        room = memoryview(bytearray(5))
        taking = asyncio.create_task(nodes["b"].receive("a", TAG, buffer=room))
        await asyncio.sleep(0)
        await nodes["a"].send("b", Message(TAG, b"hello, you"))
        return bytes((await taking).data), bytes(room)

    assert meet(talk) == (b"hello, you", bytes(5))


def test_a_second_copy_on_the_wire_is_dropped(meet: Meet) -> None:
    """Sending again is harmless: what counts is the name."""

    async def talk(nodes: Transports) -> list[bytes]:
        for tag in (TAG, TAG, TAG._replace(step=1), TAG, TAG._replace(step=1)):
            await nodes["a"].send("b", Message(tag, repr(tag).encode()))
        await nodes["a"].send("b", Message(MessageTag(1, MessageKind.LEAVE)))
        await nodes["b"].receive("a", MessageTag(1, MessageKind.LEAVE))
        taken = [await nodes["b"].receive("a", tag) for tag in (TAG, TAG._replace(step=1))]
        assert not nodes["b"]._mailbox._unclaimed
        return [bytes(message.data) for message in taken]

    assert meet(talk) == [repr(TAG).encode(), repr(TAG._replace(step=1)).encode()]


@pytest.mark.parametrize("proof", ["none", "nonsense", "of another run", "for another node"])
def test_a_stream_without_a_valid_identity_is_refused(
    meet: Meet,
    plane: type[SocketTransport],
    identities: dict[str, NodeIdentity],
    addresses: dict[str, Address],
    proof: str,
) -> None:
    """On the shaped network anybody may knock; only nodes of this run may speak, and only to whom they meant."""
    proofs = {
        "none": None,
        "nonsense": b"\xffnonsense",
        "of another run": identities["intruder"].make_identity_proof("b"),
        "for another node": identities["a"].make_identity_proof("c"),
    }

    async def talk(nodes: Transports) -> None:
        with pytest.raises(AuthenticationError, match=r"\bb\b.*: the stream"):
            await knock(plane, addresses["b"], proofs[proof])

    meet(talk)


def test_an_old_proof_is_refused(identities: dict[str, NodeIdentity], monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of a stream's first words must not open another stream later."""
    proof = identities["a"].make_identity_proof("b")
    assert identities["b"].verify_identity_proof(proof) == "a"

    monkeypatch.setattr("services.runtime.identity.time", lambda: 4e9)

    with pytest.raises(AuthenticationError, match="too old"):
        identities["b"].verify_identity_proof(proof)


def test_under_tls_nobody_gets_in_without_a_certificate_of_the_run(
    meet: Meet, plane: type[SocketTransport], identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """Encryption to whoever listens would protect nothing; nor does a proof that somebody has overheard."""

    async def talk(nodes: Transports) -> None:
        proof = identities["a"].make_identity_proof("b")
        await knock(plane, addresses["b"], proof, identities["a"]) if plane is TcpTransport else None
        for stranger in (None, identities["intruder"]):
            with pytest.raises((AuthenticationError, PeerUnreachable, OSError)):
                await knock(plane, addresses["b"], proof, stranger)

    meet(talk, encrypt=True)


def test_a_node_that_is_not_there_is_an_error_in_time(meet: Meet) -> None:
    """Nobody waits for a node that never came."""

    async def talk(nodes: Transports) -> float:
        started = asyncio.get_running_loop().time()
        with pytest.raises((PeerUnreachable, DeadlineExceeded)):
            await nodes["a"].send("c", Message(TAG))
        nodes["a"]._streams.clear()
        return asyncio.get_running_loop().time() - started

    assert meet(talk, timeout_s=0.5) < 2.0


def test_a_silent_node_is_an_error_in_time(meet: Meet) -> None:
    """The receiver's half of the same promise."""

    async def talk(nodes: Transports) -> None:
        with pytest.raises(DeadlineExceeded, match=r"from a within 0\.3 s"):
            await nodes["b"].receive("a", TAG)

    meet(talk, timeout_s=0.3)


def test_a_stream_that_breaks_off_wakes_whoever_waits(meet: Meet) -> None:
    """A killed process closes its connections: the others must learn it from that, not from a timeout."""

    async def talk(nodes: Transports) -> float:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, break_off, nodes["a"])
        started = loop.time()
        with pytest.raises(PeerUnreachable, match="a broke off its"):
            await nodes["b"].receive("a", MessageTag(1, MessageKind.PUSH))
        nodes["a"]._streams.clear()
        return loop.time() - started

    assert meet(talk, timeout_s=20.0) < 2.0


def test_sending_to_a_node_that_has_ended_is_an_error(meet: Meet) -> None:
    """The sender's half: its stream is over, and it is told so."""

    async def talk(nodes: Transports) -> None:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].abort()
        with pytest.raises(NetworkError):  # noqa: PT012 - which message meets the closed door is a matter of time
            for step in range(1, 50):
                await nodes["a"].send("b", Message(TAG._replace(step=step)))
                await asyncio.sleep(0.01)
        nodes["a"]._streams.clear()

    meet(talk)


@pytest.mark.parametrize("by", ["task", "nobody", "nobody, at once"])
def test_nothing_follows_half_a_message(meet: Meet, by: str) -> None:
    """A write that is given up must not leave the next message behind bytes that announce a longer one."""

    async def talk(nodes: Transports) -> bytes | None:
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)
        large = Message(TAG._replace(step=1), bytes(64 << 20))
        writing = (
            asyncio.create_task(nodes["a"].send("b", large)) if by == "task" else nodes["a"].start_send("b", large)
        )
        assert writing is not None
        if by != "nobody, at once":
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        try:
            await nodes["a"].send("b", Message(TAG._replace(step=2), b"whole"))
            return bytes((await nodes["b"].receive("a", TAG._replace(step=2))).data)
        except NetworkError:
            return None  # and `stop` does not mind

    assert meet(talk) in {b"whole", None}, "what comes is whole, or the stream is over"


def test_a_hand_over_that_is_given_up_leaves_the_stream_whole(meet: Meet) -> None:
    """In the middle of a message, too: everybody goes on as before, over the same stream."""
    vector = np.zeros(8 << 20)

    async def talk(nodes: Transports) -> tuple[bytes, int]:
        nodes["a"].max_piece_bytes, limit = vector.nbytes, StrategySwitchTimeout(WallClock(), 0.0)
        await nodes["a"].connect(["b"])
        with pytest.raises(DeadlineExceeded, match="the strategy switch did not finish"):
            async with limit.enforce(limit.deadline_s):
                await send_model_vectors(nodes["a"], "b", 1, [vector, vector])
        await nodes["a"].send("b", Message(TAG, b"as before"))
        return bytes((await nodes["b"].receive("a", TAG)).data), nodes["a"].traffic.messages

    data, messages = meet(talk)

    assert data == b"as before"
    assert messages == 2, "none is begun after the one under way"


def test_a_node_that_is_done_listens_until_its_neighbours_are_done(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast asynchronous worker is done long before the servers are; its exit must not break their streams."""

    async def talk(nodes: Transports) -> bytes:
        monkeypatch.setattr(nodes["b"], "_timeout_wall_s", 0.1)  # to send its own last, not to listen
        await nodes["a"].send("b", Message(TAG))
        await nodes["b"].receive("a", TAG)  # the stream is accepted: a server that is stopping takes no new ones
        stopping = asyncio.create_task(nodes["b"].stop())
        await asyncio.sleep(0.5)
        await nodes["a"].send("b", Message(TAG._replace(step=1), b"still here"))
        await nodes["a"].stop()
        nodes["a"]._streams.clear()
        await stopping
        return bytes((await nodes["b"].receive("a", TAG._replace(step=1))).data)

    assert meet(talk) == b"still here"


@pytest.mark.wall_clock
def test_a_shaped_link_takes_as_long_as_its_rate_says(meet: Meet) -> None:
    """A megabyte at 100 Mbit/s, headers of whole frames included: what tc would make of it."""
    vector = np.zeros(1_000_000, "uint8")

    async def talk(nodes: Transports) -> float:
        await nodes["a"].send("b", Message(MessageTag(0, MessageKind.PARTIAL_SUM)))  # opens the stream
        await nodes["b"].receive("a", MessageTag(0, MessageKind.PARTIAL_SUM))
        loop = asyncio.get_running_loop()
        started = loop.time()
        sending = asyncio.create_task(send_vector(nodes["a"], "b", Message(TAG), vector))
        first = await nodes["b"].receive("a", TAG)
        await receive_remaining_pieces(nodes["b"], "a", first, vector.copy())
        await sending
        return loop.time() - started

    seconds = min(meet(talk, rate_bps=1e8) for _ in range(2))  # whatever else this host does

    assert seconds == pytest.approx(8e6 / (1e8 * 1448 / 1514), rel=0.05)


@pytest.mark.wall_clock
def test_delays_are_added_where_the_kernel_has_none(meet: Meet) -> None:
    """The last rung of the ladder: each direction as late as its own path, messages in their order, nothing slower."""
    far = Network(
        paths=(NetworkPath(source="a", target="b", delay_s=0.1), NetworkPath(source="b", target="a", delay_s=0.2))
    )

    async def talk(nodes: Transports) -> list[float]:
        clock, times = WallClock(), []
        for one, other in ("ab", "ba", "ab"):
            tags = [MessageTag(len(times), MessageKind.PUSH, 0, piece) for piece in range(20)]
            started = clock.now()
            for tag in tags:
                await nodes[one].send(other, Message(tag, bytes(100_000)))
            for tag in tags:
                await nodes[other].receive(one, tag)
            times.append(clock.now() - started)
        return times

    assert meet(talk, far=far) == pytest.approx([0.1, 0.2, 0.1], abs=0.05)
