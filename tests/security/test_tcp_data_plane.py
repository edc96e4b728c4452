"""A TCP data plane refuses what is not from a node of the trial, records it once, and goes on."""

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from attacked_pair import PAYLOAD_LIMIT_BYTES, attack_pair
from refused_connection_events import make_proof_in_other_name

from services.cluster.addresses import Address
from services.runtime.clock import WallClock
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.runtime.transport import DataProtection, Message, MessageKind, MessageTag
from services.schema.errors import AuthenticationError
from services.transport.codec import _encode_payload_size, encode_message_prefix
from services.transport.streams.received_streams import STREAM_ID_BYTES, StreamOpening
from services.transport.tcp import receiver, sender, tls_handshake
from services.transport.tcp.data_plane import TcpTransport
from services.transport.tcp.sender import COUNT_FORMAT, LENGTH_FORMAT, open_connection
from services.transport.tcp.tls import _load_own_certificate

TAG = MessageTag(0, MessageKind.PUSH)
OPENING = StreamOpening(bytes(STREAM_ID_BYTES), is_reopened=False)
RunAttack = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def attack_b(identities: dict[str, NodeIdentity], addresses: dict[str, Address]) -> RunAttack:
    """Return `attack_b(attack)`, which attacks b while it receives from a, and returns what b has refused."""

    def run(attack: Callable[[], Awaitable[object]], *, protection: DataProtection = "signed") -> list[dict[str, Any]]:
        return attack_pair(TcpTransport, identities, addresses, attack, protection=protection)

    return run


async def write_bytes(address: Address, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Write bytes to a new connection, and return what comes back until the other side closes it."""
    host_name = "b" if context else None
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, server_hostname=host_name)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 5.0)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (b"\xff" * 300, "4294967295 bytes; at most 65536 are allowed"),
        (LENGTH_FORMAT.pack(0), "carries no identity proof"),
        (LENGTH_FORMAT.pack(300) + b"\xa7" * 300, "not of this run"),
        (LENGTH_FORMAT.pack(1 << 30), "1073741824 bytes; at most 65536 are allowed"),
    ],
    ids=["garbage", "no certificate", "garbage proof", "a proof of 1 GiB"],
)
def test_bytes_without_a_proof_are_refused_and_recorded(
    attack_b: RunAttack, addresses: dict[str, Address], opening: bytes, reason: str
) -> None:
    """Every process of the network may connect; only the length of its proof is read before memory is allocated."""
    (refused,) = attack_b(lambda: write_bytes(addresses["b"], opening))

    assert reason in refused["reason"]
    assert refused["claimed_sender"] == ""


@pytest.mark.parametrize("liar", ["intruder", "c"], ids=["another run's certificate", "another node's name"])
def test_a_proof_in_the_name_of_another_node_is_refused_and_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address], liar: str
) -> None:
    """A certificate is public: only its key proves the name. Another run's authority may have given the same name."""
    proof = (
        identities["intruder"].make_identity_proof("b")
        if liar == "intruder"
        else make_proof_in_other_name(identities["c"], identities["a"], "b", time.time())
    )

    async def attack() -> None:
        with pytest.raises(AuthenticationError, match="not of this run"):
            await open_connection(addresses["b"], "b", None, proof, OPENING)

    (refused,) = attack_b(attack)

    assert "not of this run" in refused["reason"]
    assert refused["claimed_sender"] == "a"


def test_a_replayed_opening_is_refused_and_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """An attacker that reads the data network has the bytes of every opening, and can send them again at once."""
    proof = identities["c"].make_identity_proof("b")

    async def attack() -> None:
        (await open_connection(addresses["b"], "b", None, proof, OPENING)).sender.close()
        with pytest.raises(AuthenticationError, match="was used before"):
            await open_connection(addresses["b"], "b", None, proof, OPENING)

    (refused,) = attack_b(attack)

    assert "was used before" in refused["reason"]
    assert refused["claimed_sender"] == "c"


def test_a_message_that_announces_too_much_is_refused_before_memory_is_allocated(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """The limit of the plan holds for nodes of the trial too: the sender here has a certificate."""
    prefix = encode_message_prefix(Message(TAG))
    announced = prefix[: -len(_encode_payload_size(0))] + _encode_payload_size(1 << 30)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def attack() -> None:
        proof = identities["c"].make_identity_proof("b")
        opening = LENGTH_FORMAT.pack(len(proof)) + proof + OPENING.encode()
        answer = await write_bytes(addresses["b"], opening + COUNT_FORMAT.pack(1) + announced + b"x" * 1000)
        assert answer == LENGTH_FORMAT.pack(0) + COUNT_FORMAT.pack(0), "the proof is accepted, the message is not"

    (refused,) = attack_b(attack)

    assert f"1073741824 bytes; at most {PAYLOAD_LIMIT_BYTES} are allowed" in refused["reason"]
    assert refused["claimed_sender"] == "c"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 << 10


@pytest.mark.parametrize("first_bytes", [b"", b"\x40"], ids=["silent", "one byte"])
def test_a_sender_without_a_proof_in_time_is_refused_and_recorded(
    attack_b: RunAttack, addresses: dict[str, Address], monkeypatch: pytest.MonkeyPatch, first_bytes: bytes
) -> None:
    """A process that opens streams and sends nothing must not keep memory and descriptors of a node."""
    monkeypatch.setattr(receiver, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def attack() -> None:
        with suppress(ConnectionResetError):
            assert await write_bytes(addresses["b"], first_bytes) == b""

    (refused,) = attack_b(attack)

    assert refused["reason"] == "no proof of identity within 0.2 s"


@pytest.mark.parametrize(
    ("protection", "reason"),
    [
        ("signed", "more than 6 streams wait for a proof of identity"),
        ("tls", "more than 6 connections wait for a TLS handshake"),
    ],
)
def test_the_number_of_streams_without_a_proof_is_bounded(
    attack_b: RunAttack,
    addresses: dict[str, Address],
    monkeypatch: pytest.MonkeyPatch,
    protection: DataProtection,
    reason: str,
) -> None:
    """Ten streams within the time limit: six may wait for a proof, four are closed at once."""
    monkeypatch.setattr("services.transport.tcp.data_plane.MAX_UNIDENTIFIED_STREAMS", 6)

    async def attack() -> None:
        streams = [await asyncio.open_connection(addresses["b"].host, addresses["b"].port) for _ in range(10)]
        await asyncio.sleep(0.05)
        for _, writer in streams:
            writer.transport.abort()
        await asyncio.sleep(0.05)

    assert [refused["reason"] for refused in attack_b(attack, protection=protection)] == [reason] * 4


def test_a_node_logs_a_bounded_number_of_rejections() -> None:
    """An attacker must not be able to fill the disk; the last event says that later ones are missing."""
    lines: list[str] = []
    rejections = RefusedConnectionLog(RunLog("b", WallClock(), lines.append), max_events=3)
    for number in range(10):
        rejections.record(f"attack {number}", "x" * 1000)

    assert rejections.count == 10
    assert ['"is_last": true' in line for line in lines] == [False, False, True]
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize("certificate", ["no TLS", "none", "another run's"])
def test_tls_without_a_certificate_of_the_run_is_refused_and_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address], certificate: str
) -> None:
    """With TLS, an unknown process does not get as far as the proof of identity."""
    context = ssl.create_default_context(cadata=identities["b"].ca_certificate.decode())
    if certificate == "another run's":
        _load_own_certificate(context, identities["intruder"])

    async def attack() -> None:
        with suppress(OSError):
            await write_bytes(addresses["b"], b"\xff" * 300, None if certificate == "no TLS" else context)

    (refused,) = attack_b(attack, protection="tls")

    assert refused["reason"].startswith("the TLS handshake failed: ")


def test_a_slow_tls_handshake_is_refused_and_recorded(
    attack_b: RunAttack, addresses: dict[str, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit of the proof begins after the handshake, so the handshake has its own."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def attack() -> None:
        with suppress(ConnectionResetError):
            assert await write_bytes(addresses["b"], b"\x16") == b""

    (refused,) = attack_b(attack, protection="tls")

    assert "SSL handshake is taking longer than 0.2 seconds" in refused["reason"]


@pytest.mark.parametrize("protection", ["signed", "authenticated", "tls"])
def test_an_altered_message_is_detected_with_authentication_or_tls_only(
    identities: dict[str, NodeIdentity], addresses: dict[str, Address], protection: DataProtection
) -> None:
    """The signature protects the opening of a stream, not its messages: docs/security.md says so."""
    lines: list[str] = []

    async def main() -> bytes:
        proxy = AlteringProxy(addresses["b"])
        views = {"a": addresses | {"b": await proxy.start()}, "b": addresses}
        nodes = {
            name: TcpTransport(views[name], identities[name], WallClock(), 5.0, 30.0, None, protection) for name in "ab"
        }
        nodes["b"].limit_incoming_streams(1 << 20, RefusedConnectionLog(RunLog("b", WallClock(), lines.append)))
        for node in nodes.values():
            await node.start()
        await nodes["a"].send("b", Message(TAG, bytes(100)))
        await nodes["b"].receive("a", TAG)
        proxy.must_alter = True
        await nodes["a"].send("b", Message(TAG._replace(step=1), bytes(50_000)))
        try:
            return bytes((await nodes["b"].receive("a", TAG._replace(step=1))).data)
        finally:
            for node in nodes.values():
                await node.abort()
            await proxy.close()

    if protection == "signed":
        assert sum(asyncio.run(main())) == 1, "one bit is wrong, and the receiver does not know"
        assert not lines
        return
    assert sum(asyncio.run(main())) == 0, "the altered bytes end the connection, and are sent again over another one"
    (line,) = lines
    reasons = {"tls": "TLS rejects the bytes of the stream", "authenticated": "has a wrong authentication tag"}
    assert reasons[protection] in line


class AlteringProxy:
    """Forwards a connection, and flips the lowest bit of a byte in the middle of a long part when asked to."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.must_alter = False

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return Address(host="127.0.0.1", port=self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, forward_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._tasks += [
            asyncio.create_task(self._copy(reader, forward_writer, may_alter=True)),
            asyncio.create_task(self._copy(back_reader, writer, may_alter=False)),
        ]

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_alter: bool) -> None:
        self._writers.append(writer)
        with suppress(OSError):
            while data := bytearray(await reader.read(1 << 14)):
                if may_alter and self.must_alter and len(data) > 5_000:
                    data[len(data) // 2] ^= 1
                    self.must_alter = False
                writer.write(data)
                await writer.drain()
        writer.close()


def test_a_proof_can_be_used_again_after_its_node_has_restarted_only_within_its_lifetime(
    identities: dict[str, NodeIdentity],
) -> None:
    """The memory of proofs is that of the process, which docs/security.md states as a limit."""
    proof = identities["a"].make_identity_proof("b")
    identity = identities["b"]
    restarted = NodeIdentity("b", identity.ca_certificate, identity.certificate, identity.private_key)

    assert identity.verify_identity_proof(proof) == restarted.verify_identity_proof(proof) == "a"
    with pytest.raises(AuthenticationError, match="was used before"):
        restarted.verify_identity_proof(proof)


@pytest.mark.parametrize("protection", ["signed", "tls"])
def test_a_socket_that_is_closed_at_once_is_no_rejection(
    attack_b: RunAttack, addresses: dict[str, Address], protection: DataProtection
) -> None:
    """A port scan sends nothing that could be refused, and neither does a node that looks whether this one runs."""

    async def attack() -> None:
        with socket.create_connection((addresses["b"].host, addresses["b"].port)):
            await asyncio.sleep(0.02)

    assert attack_b(attack, protection=protection) == []


@pytest.mark.parametrize("length", [sender.MAX_REPLY_BYTES + 1, 0xFFFFFFFF])
def test_a_receiver_can_not_make_a_sender_read_a_long_reply(addresses: dict[str, Address], length: int) -> None:
    """Another process may listen at the address of a node that has ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(LENGTH_FORMAT.pack(length) + bytes(1000))

    async def main() -> None:
        server = await asyncio.start_server(answer, addresses["b"].host, addresses["b"].port)
        try:
            await open_connection(
                addresses["b"], "b", None, b"proof", StreamOpening(bytes(STREAM_ID_BYTES), is_reopened=False)
            )
        finally:
            server.close()

    with pytest.raises(AuthenticationError, match=rf"a reply of b has {length} bytes; at most {64 << 10} are allowed"):
        asyncio.run(main())
