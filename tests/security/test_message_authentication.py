"""With `security: {data: authenticated}`, a message that was changed on its way is refused before it is decoded."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attacked_pair import attack_pair

from services.cluster.addresses import Address
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.errors import AuthenticationError, MessageAuthenticationError, NetworkError
from services.transport import codec
from services.transport.codec import encode_message_prefix
from services.transport.grpc.channels import open_channel, translate_grpc_errors
from services.transport.grpc.data_plane import IDENTITY_METADATA_KEY, KEY_REPLY_METADATA_KEY, SEND_METHOD, GrpcTransport
from services.transport.stream_authentication import (
    TAG_BYTES,
    MessageAuthenticator,
    StreamKeyAgreement,
    reply_to_key_agreement,
)
from services.transport.streams.received_streams import STREAM_ID_BYTES, StreamOpening
from services.transport.tcp.data_plane import TcpTransport
from services.transport.tcp.receiver import HEAD_BYTES
from services.transport.tcp.sender import COUNT_FORMAT, open_connection
from services.wire.data_pb2 import IdentityProof, KeyReply, StreamReceipt

Change = Callable[[list[bytes]], list[bytes]]
PAYLOAD_BYTES = 1000
FIRST_OPENING = StreamOpening(bytes(STREAM_ID_BYTES), is_reopened=False)
WRONG_TAG = "a message has a wrong authentication tag: it was altered, repeated, left out or reordered"
INCOMPLETE = "the stream ended within a message: it was cut off, or its sender has broken it off"


def flip_bit(message: bytes, position: int) -> bytes:
    """Return the message with another lowest bit in one byte."""
    changed = bytearray(message)
    changed[position] ^= 1
    return bytes(changed)


CHANGES: dict[str, Change] = {
    "first byte altered": lambda sent: [sent[0], flip_bit(sent[1], 0), sent[2]],
    "head altered": lambda sent: [sent[0], flip_bit(sent[1], 11), sent[2]],
    "payload altered": lambda sent: [sent[0], flip_bit(sent[1], HEAD_BYTES + TAG_BYTES + 100), sent[2]],
    "tag altered": lambda sent: [sent[0], flip_bit(sent[1], -1), sent[2]],
    "replayed": lambda sent: [sent[0], sent[0], sent[1]],
    "reordered": lambda sent: [sent[0], sent[2], sent[1]],
    "left out": lambda sent: [sent[0], sent[2]],
    "replaced by its shorter start": lambda sent: [sent[0], sent[1][:-100], sent[2]],
}


def encode_tcp(authenticator: MessageAuthenticator, message: Message) -> bytes:
    """Return a message as on a TCP stream: number and prefix, tag, payload, tag."""
    head = COUNT_FORMAT.pack(message.tag.step + 1) + encode_message_prefix(message)
    tags = [authenticator.make_tag(part) for part in (head, message.data)]
    return b"".join((head, tags[0], message.data, tags[1]))


def encode_grpc(authenticator: MessageAuthenticator, message: Message) -> bytes:
    """Return a message as on a gRPC stream: prefix, payload, tag."""
    encoded = encode_message_prefix(message) + bytes(message.data)
    return encoded + authenticator.make_tag(encoded)


def make_messages(encode: Callable[..., bytes], authenticator: MessageAuthenticator) -> list[bytes]:
    """Return three messages that c could send on its stream."""
    return [
        encode(authenticator, Message(MessageTag(step, MessageKind.PUSH), bytes([step]) * PAYLOAD_BYTES))
        for step in range(3)
    ]


async def send_changed_over_tcp(identity: NodeIdentity, address: Address, change: Change) -> None:
    """Open a stream to b as a real node, and send messages that are changed on their way."""
    agreement = StreamKeyAgreement(identity, "b")
    stream, _ = await open_connection(address, "b", None, agreement.identity_proof, FIRST_OPENING, agreement)
    assert stream.authenticator is not None
    await stream.write_to_socket(b"".join(change(make_messages(encode_tcp, stream.authenticator))))
    await asyncio.sleep(0.05)
    stream.close()


async def write_messages(call: Any, messages: Iterable[bytes]) -> None:
    """Write messages to a gRPC stream to b, and wait for its end."""
    async with translate_grpc_errors("b"):
        for message in messages:
            await call.write(message)
        await call.done_writing()
        await call


async def send_changed_over_grpc(identity: NodeIdentity, address: Address, change: Change) -> None:
    """Open a stream to b as a real node, and send messages that are changed on their way."""
    agreement = StreamKeyAgreement(identity, "b")
    async with open_channel(address, "b", None) as channel:
        metadata = ((IDENTITY_METADATA_KEY, agreement.identity_proof),)
        call: Any = channel.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)(metadata=metadata, timeout=3.0)
        reply = dict(await call.initial_metadata())[KEY_REPLY_METADATA_KEY]
        messages = change(make_messages(encode_grpc, agreement.complete(reply)))
        with pytest.raises((NetworkError, asyncio.InvalidStateError)):  # b ends the call when it refuses a message
            await write_messages(call, messages)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("plane", [TcpTransport, GrpcTransport])
def test_a_changed_message_is_refused_and_recorded_once(
    identities: dict[str, NodeIdentity], addresses: dict[str, Address], plane: Any, change: Change
) -> None:
    """The sender is a node of the trial; only its messages were changed. The stream of a goes on."""
    send = send_changed_over_tcp if plane is TcpTransport else send_changed_over_grpc
    attack = lambda: send(identities["c"], addresses["b"], change)  # noqa: E731 - one of two functions

    refused = attack_pair(plane, identities, addresses, attack, protection="authenticated")

    assert refused == [{"reason": WRONG_TAG, "claimed_sender": "c", "is_last": False}]


def test_unchanged_messages_are_accepted(identities: dict[str, NodeIdentity], addresses: dict[str, Address]) -> None:
    """Otherwise the other tests would show nothing: the same messages without a change are no reason to refuse."""
    attack = lambda: send_changed_over_tcp(identities["c"], addresses["b"], lambda sent: sent)  # noqa: E731

    assert attack_pair(TcpTransport, identities, addresses, attack, protection="authenticated") == []


def cut_messages(sent: Iterable[bytes], size_bytes: int) -> list[bytes]:
    """Return the first bytes of a stream."""
    return [b"".join(sent)[:size_bytes]]


@pytest.mark.parametrize("part_bytes", [1, HEAD_BYTES + 5, HEAD_BYTES + TAG_BYTES + PAYLOAD_BYTES])
def test_a_stream_that_is_cut_within_a_message_is_recorded(
    identities: dict[str, NodeIdentity], addresses: dict[str, Address], part_bytes: int
) -> None:
    """The incomplete message is not delivered; between two messages, the end of a connection is none of this."""
    message_bytes = HEAD_BYTES + PAYLOAD_BYTES + 2 * TAG_BYTES

    def refused_after(size_bytes: int) -> list[str]:
        attack = lambda: send_changed_over_tcp(  # noqa: E731
            identities["c"], addresses["b"], lambda sent: cut_messages(sent, size_bytes)
        )
        refused = attack_pair(TcpTransport, identities, addresses, attack, protection="authenticated")
        return [event["reason"] for event in refused]

    assert refused_after(message_bytes) == []
    assert refused_after(message_bytes + part_bytes) == [INCOMPLETE]


def test_a_refused_message_is_not_decoded(
    identities: dict[str, NodeIdentity], addresses: dict[str, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix that was altered chooses neither the size nor the place of memory."""
    decoded: list[int] = []

    def record_and_decode(prefix: bytearray) -> codec.PrefixFields:
        fields = codec.decode_message_prefix(prefix)
        decoded.append(codec.message_tag(fields).step)
        return fields

    monkeypatch.setattr("services.transport.tcp.receiver.decode_message_prefix", record_and_decode)
    change = CHANGES["head altered"]
    attack = lambda: send_changed_over_tcp(identities["c"], addresses["b"], change)  # noqa: E731

    attack_pair(TcpTransport, identities, addresses, attack, protection="authenticated")

    assert decoded.count(1) == 1, "message 1 of c is not decoded, but that of a"


@pytest.mark.parametrize("plane", [TcpTransport, GrpcTransport])
def test_an_opening_without_a_key_is_refused(
    identities: dict[str, NodeIdentity], addresses: dict[str, Address], plane: Any
) -> None:
    """An attacker must not be able to turn off the authentication of messages."""
    proof = identities["c"].make_identity_proof("b")

    async def attack() -> None:
        if plane is TcpTransport:
            with pytest.raises(AuthenticationError, match="no valid key for the authentication of messages"):
                await open_connection(addresses["b"], "b", None, proof, FIRST_OPENING)
            return
        async with open_channel(addresses["b"], "b", None) as channel:
            call = channel.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)
            with pytest.raises(AuthenticationError, match="no valid key for the authentication of messages"):
                async with translate_grpc_errors("b"):
                    await call(metadata=((IDENTITY_METADATA_KEY, proof),), timeout=3.0)

    (refused,) = attack_pair(plane, identities, addresses, attack, protection="authenticated")

    assert refused["claimed_sender"] == "c"


def test_both_nodes_have_the_same_key_and_no_other_stream_has_it(identities: dict[str, NodeIdentity]) -> None:
    """Each stream has a key of its own, so that the number of a tag is used once per key."""

    def agree() -> tuple[MessageAuthenticator, MessageAuthenticator]:
        agreement = StreamKeyAgreement(identities["a"], "b")
        reply, receiving = reply_to_key_agreement(identities["b"], "a", agreement.identity_proof)
        return agreement.complete(reply), receiving

    (sending, receiving), (other_sending, _) = agree(), agree()
    tags = [sending.make_tag(b"bytes") for _ in range(3)]

    assert len(set(tags)) == 3
    assert other_sending.make_tag(b"bytes") not in tags
    for tag in tags:
        receiving.verify_tag(b"bytes", tag)
    with pytest.raises(MessageAuthenticationError):
        receiving.verify_tag(b"bytes", tags[0])


@pytest.mark.parametrize("liar", ["another node", "another run", "another stream", "another key", "nothing"])
def test_a_key_reply_of_another_node_or_stream_is_refused(identities: dict[str, NodeIdentity], liar: str) -> None:
    """A process between two nodes can't put its own keys in place of theirs."""
    agreement = StreamKeyAgreement(identities["a"], "b")
    other_opening = StreamKeyAgreement(identities["a"], "b").identity_proof
    reply, _ = reply_to_key_agreement(identities["b"], "a", agreement.identity_proof)
    other_key = KeyReply.FromString(reply)
    other_key.public_key = IdentityProof.FromString(other_opening).public_key
    replies = {
        "another node": reply_to_key_agreement(identities["c"], "a", agreement.identity_proof)[0],
        "another run": reply_to_key_agreement(identities["intruder"], "a", agreement.identity_proof)[0],
        "another stream": reply_to_key_agreement(identities["b"], "a", other_opening)[0],
        "another key": other_key.SerializeToString(),
        "nothing": b"",
    }

    with pytest.raises(AuthenticationError, match=r"not of this run, or for another stream|c has replied in place"):
        agreement.complete(replies[liar])


def test_a_proof_whose_key_was_replaced_is_refused(identities: dict[str, NodeIdentity]) -> None:
    """The signature of an opening covers the public key of its stream."""
    proof = IdentityProof.FromString(StreamKeyAgreement(identities["a"], "b").identity_proof)
    proof.public_key = IdentityProof.FromString(StreamKeyAgreement(identities["c"], "b").identity_proof).public_key

    with pytest.raises(AuthenticationError, match="not of this run"):
        identities["b"].verify_identity_proof(proof.SerializeToString())


def test_a_key_reply_opens_no_stream(identities: dict[str, NodeIdentity]) -> None:
    """A signature that b has made as a receiver must not pass for an opening by b."""
    agreement = StreamKeyAgreement(identities["a"], "b")
    opening = IdentityProof.FromString(agreement.identity_proof)
    reply = KeyReply.FromString(reply_to_key_agreement(identities["b"], "a", agreement.identity_proof)[0])
    forged = IdentityProof(
        certificate=reply.certificate,
        issued_at=opening.issued_at,
        signature=reply.signature,
        nonce=opening.nonce,
        public_key=reply.public_key,
    )

    with pytest.raises(AuthenticationError, match="not of this run"):
        identities["a"].verify_identity_proof(forged.SerializeToString())


def test_errors_and_representations_contain_no_key(identities: dict[str, NodeIdentity]) -> None:
    """Errors end up in logs."""
    key = bytes(range(32))
    authenticator = MessageAuthenticator(key)
    with pytest.raises(MessageAuthenticationError) as failure:
        authenticator.verify_tag(b"bytes", bytes(TAG_BYTES))

    text = f"{failure.value!r} {authenticator!r} {StreamKeyAgreement(identities['a'], 'b')!r}"
    assert not any(part in text for part in (key.hex(), repr(key), identities["a"].private_key.decode()))
