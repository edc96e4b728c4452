"""A gRPC data plane refuses what is not from a node of the trial, and goes on.

These tests are about what Ensayo's own code refuses. What gRPC refuses before any of Ensayo's code runs is recorded by
the process of a node, which reads gRPC's log: see `test_refused_attacks.py`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from attacked_pair import PAYLOAD_LIMIT_BYTES, attack_pair
from refused_connection_events import make_proof_in_other_name

from services.cluster.addresses import Address
from services.runtime.identity import NodeIdentity
from services.runtime.transport import DataProtection, Message, MessageKind, MessageTag
from services.schema.errors import AuthenticationError, NetworkError, PeerUnreachable
from services.transport.codec import encode_message
from services.transport.grpc import data_plane
from services.transport.grpc.channels import open_channel, translate_grpc_errors
from services.transport.grpc.data_plane import IDENTITY_METADATA_KEY, SEND_METHOD, GrpcTransport
from services.wire.data_pb2 import StreamReceipt

TAG = MessageTag(0, MessageKind.PUSH)
RunAttack = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def attack_b(identities: dict[str, NodeIdentity], addresses: dict[str, Address]) -> RunAttack:
    """Return `attack_b(attack)`, which attacks b while it receives from a, and returns what b has refused."""

    def run(attack: Callable[[], Awaitable[object]], *, protection: DataProtection = "signed") -> list[dict[str, Any]]:
        return attack_pair(GrpcTransport, identities, addresses, attack, protection=protection)

    return run


async def send_stream(
    address: Address, proof: bytes | None, *messages: bytes, tls_identity: NodeIdentity | None = None
) -> int:
    """Send messages in a stream that is opened with this proof, and return how many b has received."""
    async with open_channel(address, "b", tls_identity) as channel, translate_grpc_errors("b"):
        metadata = () if proof is None else ((IDENTITY_METADATA_KEY, proof),)
        open_stream = channel.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)
        requests = iter(messages) if messages else None
        return int((await open_stream(requests, metadata=metadata, timeout=3.0)).messages)


END = encode_message(Message(MessageTag(0, MessageKind.END_OF_STREAM)))


@pytest.mark.parametrize("proof", ["none", "garbage", "another run's certificate", "another node's name"])
def test_a_stream_without_a_valid_proof_is_refused_and_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address], proof: str
) -> None:
    """Every process of the network may connect; messages are read only after the proof is verified."""
    in_other_name = make_proof_in_other_name(identities["c"], identities["a"], "b", time.time())
    proofs = {
        "none": None,
        "garbage": b"\xff" * 300,
        "another run's certificate": identities["intruder"].make_identity_proof("b"),
        "another node's name": in_other_name,
    }

    async def attack() -> None:
        with pytest.raises(AuthenticationError):
            await send_stream(addresses["b"], proofs[proof])

    (refused,) = attack_b(attack)

    assert refused["claimed_sender"] == ("a" if "another" in proof else "")
    assert refused["reason"].startswith("the stream")


def test_a_replayed_opening_is_refused_and_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """An attacker that reads the data network has the metadata of every stream, and can send them again at once."""
    proof = identities["c"].make_identity_proof("b")

    async def attack() -> None:
        assert await send_stream(addresses["b"], proof, END) == 0
        with pytest.raises(AuthenticationError, match="was used before"):
            await send_stream(addresses["b"], proof)

    (refused,) = attack_b(attack)

    assert "was used before" in refused["reason"]
    assert refused["claimed_sender"] == "c"


def test_a_message_longer_than_the_limit_is_not_read_and_is_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """The limit of the plan holds for nodes of the trial too: the sender has a certificate, and gets the reason."""

    async def attack() -> None:
        proof = identities["c"].make_identity_proof("b")
        too_long = encode_message(Message(TAG, bytes(PAYLOAD_LIMIT_BYTES + 1000)))
        with pytest.raises(NetworkError, match=r"larger than max .*RESOURCE_EXHAUSTED"):
            await send_stream(addresses["b"], proof, too_long, END)

    (refused,) = attack_b(attack)

    assert "a message is longer than the limit of" in refused["reason"]
    assert refused["claimed_sender"] == "c"


def test_a_stream_that_its_sender_breaks_off_is_not_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """A killed node has sent nothing that must be refused."""

    async def attack() -> None:
        metadata = ((IDENTITY_METADATA_KEY, identities["c"].make_identity_proof("b")),)
        async with open_channel(addresses["b"], "b", None) as channel:
            call = channel.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)(metadata=metadata)
            await call.write(encode_message(Message(TAG, bytes(1000))))
            await asyncio.sleep(0.1)
            call.cancel()

    assert attack_b(attack) == []


def test_a_message_of_garbage_ends_its_stream_and_is_recorded(
    attack_b: RunAttack, identities: dict[str, NodeIdentity], addresses: dict[str, Address]
) -> None:
    """Invalid bytes must not be interpreted as a vector, not even those of a node with a certificate."""

    async def attack() -> None:
        with pytest.raises(NetworkError):
            await send_stream(addresses["b"], identities["c"].make_identity_proof("b"), b"\xff" * 300, END)

    (refused,) = attack_b(attack)

    assert "300 bytes are not a valid DataMessage" in refused["reason"]


@pytest.mark.parametrize("first_bytes", [b"", b"PRI * HTTP/2.0", b"\xff" * 300], ids=["silent", "slow", "garbage"])
@pytest.mark.parametrize("protection", ["signed", "tls"])
def test_a_connection_that_sends_no_call_in_time_is_closed(
    attack_b: RunAttack,
    addresses: dict[str, Address],
    monkeypatch: pytest.MonkeyPatch,
    first_bytes: bytes,
    protection: DataProtection,
) -> None:
    """A process that opens connections and sends nothing must not keep memory and descriptors of a node."""
    monkeypatch.setattr(data_plane, "HANDSHAKE_TIMEOUT_S", 1.0)

    async def attack() -> None:
        reader, writer = await asyncio.open_connection(addresses["b"].host, addresses["b"].port)
        writer.write(first_bytes)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5.0)  # ends when b closes the connection
        writer.transport.abort()

    assert attack_b(attack, protection=protection) == [], "gRPC closes it before Ensayo's code runs"


@pytest.mark.parametrize("unknown", ["no certificate", "another run's certificate"])
def test_tls_refuses_unknown_processes_and_grpc_writes_a_line(
    attack_b: RunAttack,
    identities: dict[str, NodeIdentity],
    addresses: dict[str, Address],
    unknown: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With TLS, an unknown process does not get as far as the proof of identity."""

    async def attack() -> None:
        proof, other_node = identities["a"].make_identity_proof("b"), identities["intruder"]
        with pytest.raises(PeerUnreachable):
            await send_stream(addresses["b"], proof, tls_identity=other_node if "another" in unknown else None)

    assert attack_b(attack, protection="tls") == []
    assert "Handshake failed" in capfd.readouterr().err
