"""Authentication of the messages of a data stream: agreement of two nodes on a key, and tags of messages.

The key belongs to one stream. Both nodes draw an X25519 key for it (RFC 7748) and sign the public part with the key of
their certificate, as in SIGMA (H. Krawczyk, "SIGMA: the 'SIGn-and-MAc' approach to authenticated Diffie-Hellman",
CRYPTO 2003). HKDF (RFC 5869) derives the key of the stream from the shared secret, the names of sender and receiver,
the nonce of the opening and both public keys.

A tag is the AES-256-GMAC of the bytes (NIST SP 800-38D), 16 bytes long. Its nonce is the number of the tag in the
stream, so a repeated, left out or reordered message has a wrong tag. AES-GMAC is faster than keyed BLAKE2b and
HMAC-SHA256 (docs/results/protection.md).
"""

from functools import partial
from itertools import count
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from services.runtime.identity import PROOF_ERRORS, NodeIdentity
from services.runtime.transport import Buffer
from services.schema.errors import AuthenticationError, MessageAuthenticationError
from services.wire.data_pb2 import IdentityProof, KeyReply

TAG_BYTES = 16
KEY_BYTES = 32
NONCE_BYTES = 12  # of AES-GCM
WRONG_TAG_REASON = "a message has a wrong authentication tag: it was altered, repeated, left out or reordered"

AuthenticatedBytes: TypeAlias = Buffer | bytearray


class MessageAuthenticator:
    """Makes the tags of one stream at its sender, or verifies them at its receiver, in the order of the stream."""

    def __init__(self, key: bytes) -> None:
        """Start with the first tag of a stream; `key` has 32 bytes and belongs to this stream only."""
        self._key = AES256(key)
        self._one_part_cipher = AESGCM(key)
        self._nonces = map(_encode_tag_number, count())

    def make_tag(self, *parts: AuthenticatedBytes) -> bytes:
        """Return the next tag of the stream: that of the concatenated parts."""
        nonce = next(self._nonces)
        if len(parts) == 1:
            return self._one_part_cipher.encrypt(nonce, b"", _view_bytes(parts[0]))
        encryptor = Cipher(self._key, GCM(nonce)).encryptor()
        for part in parts:
            encryptor.authenticate_additional_data(_view_bytes(part))
        encryptor.finalize()
        return encryptor.tag

    def verify_tag(self, authenticated: AuthenticatedBytes, tag: AuthenticatedBytes) -> None:
        """Verify the next tag of the stream.

        Raises:
            MessageAuthenticationError: the tag is not that of these bytes at this place of the stream.
        """
        try:
            self._one_part_cipher.decrypt(next(self._nonces), bytes(tag), authenticated)
        except InvalidTag:
            raise MessageAuthenticationError(WRONG_TAG_REASON) from None


class StreamKeyAgreement:
    """The sender's side of the agreement on the key of one stream."""

    def __init__(self, identity: NodeIdentity, receiver_name: str) -> None:
        """Draw a key, and make the proof of identity that opens the stream and contains the public key."""
        self._identity = identity
        self._receiver_name = receiver_name
        self._private_key = X25519PrivateKey.generate()
        self._public_key = self._private_key.public_key().public_bytes_raw()
        self.identity_proof = identity.make_identity_proof(receiver_name, self._public_key)

    def complete(self, serialised_reply: bytes) -> MessageAuthenticator:
        """Verify the receiver's reply, and return the authenticator of the messages to send.

        Raises:
            AuthenticationError: the reply is not from the receiver, or not for this stream.
        """
        nonce = IdentityProof.FromString(self.identity_proof).nonce
        try:
            reply = KeyReply.FromString(serialised_reply)
            public_keys = (self._public_key, reply.public_key)
            make_text = partial(_key_reply_text, self._identity.name, nonce=nonce, public_keys=public_keys)
            name = self._identity.verify_signed_text(reply.certificate, make_text, reply.signature)
            secret = self._private_key.exchange(X25519PublicKey.from_public_bytes(reply.public_key))
        except PROOF_ERRORS as error:
            raise AuthenticationError(
                f"the key reply of {self._receiver_name} is not of this run, or for another stream"
            ) from error
        if name != self._receiver_name:
            raise AuthenticationError(f"{name} has replied in place of {self._receiver_name}")
        return MessageAuthenticator(_derive_key(secret, self._identity.name, name, nonce, public_keys))


def reply_to_key_agreement(
    identity: NodeIdentity, sender_name: str, serialised_proof: bytes
) -> tuple[bytes, MessageAuthenticator]:
    """Return the receiver's reply to the opening of a stream, and the authenticator of the messages to receive.

    Args:
        identity: of the receiver.
        sender_name: name of the sender, which the proof has proved.
        serialised_proof: the sender's proof of identity, which has been verified.

    Raises:
        AuthenticationError: the proof has no valid public key.
    """
    proof, private_key = IdentityProof.FromString(serialised_proof), X25519PrivateKey.generate()
    try:
        secret = private_key.exchange(X25519PublicKey.from_public_bytes(proof.public_key))
    except ValueError as error:
        raise AuthenticationError(
            f"the stream's identity proof of {sender_name} has no valid key for the authentication of messages"
        ) from error
    public_keys = (proof.public_key, private_key.public_key().public_bytes_raw())
    text = _key_reply_text(sender_name, identity.name, nonce=proof.nonce, public_keys=public_keys)
    reply = KeyReply(
        certificate=identity.certificate_der, public_key=public_keys[1], signature=identity.sign_text(text)
    )
    authenticator = MessageAuthenticator(_derive_key(secret, sender_name, identity.name, proof.nonce, public_keys))
    return bytes(reply.SerializeToString()), authenticator


def _key_reply_text(sender_name: str, receiver_name: str, *, nonce: bytes, public_keys: tuple[bytes, bytes]) -> bytes:
    keys = " ".join(key.hex() for key in public_keys)
    return f"reply of {receiver_name} to {sender_name}, nonce {nonce.hex()}, keys {keys}".encode()


def _derive_key(
    secret: bytes, sender_name: str, receiver_name: str, nonce: bytes, public_keys: tuple[bytes, bytes]
) -> bytes:
    agreement = _key_reply_text(sender_name, receiver_name, nonce=nonce, public_keys=public_keys)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"ensayo data stream, " + agreement).derive(secret)


def _view_bytes(part: AuthenticatedBytes) -> Buffer:
    """Return a view of the bytes of a buffer, which may have entries of several bytes."""
    view = memoryview(part)
    return view.cast("B") if view.nbytes else b""


def _encode_tag_number(tag_number: int) -> bytes:
    return tag_number.to_bytes(NONCE_BYTES, "big")
