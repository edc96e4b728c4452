"""Identity of a node: its certificate, and signed proofs of its identity.

The certificate comes from the run's own authority; the proofs are for data streams.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from time import time

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID
from google.protobuf.message import DecodeError

from services.runtime.proof_memory import ProofMemory
from services.schema.errors import AuthenticationError
from services.wire.data_pb2 import IdentityProof

# A proof is made when a stream is opened; an older one has been recorded and replayed.
PROOF_LIFETIME_S = 300.0
NONCE_BYTES = 16
# Errors of reading a damaged certificate, or one that the authority of the run has not issued.
PROOF_ERRORS = (
    *(InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion, DecodeError),
    *(ValueError, TypeError, LookupError),
)
CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.pem", "cert.pem", "key.pem"


@dataclass(frozen=True)
class NodeIdentity:
    """Identity of a node: name, certificate and private key.

    The certificate of the run's authority is included. Certificates and key are in PEM format.
    """

    name: str
    ca_certificate: bytes
    certificate: bytes
    private_key: bytes = field(repr=False)  # so that no error message contains it
    accepted_proofs: ProofMemory = field(default_factory=ProofMemory, compare=False, repr=False)

    @classmethod
    def read(cls, node_name: str, secrets_folder: Path) -> "NodeIdentity":
        """Read a node's identity (certificates and private key) from files that an engine has written."""
        ca, certificate, key = ((secrets_folder / file).read_bytes() for file in (CA_FILE, CERTIFICATE_FILE, KEY_FILE))
        return cls(node_name, ca, certificate, key)

    def make_identity_proof(self, receiver_name: str, public_key: bytes = b"") -> bytes:
        """Return a signed proof of this node's identity, for a stream to one receiver.

        The node opens the stream with the proof. `public_key` is the sender's public key of the stream; it is empty if
        the messages of the stream have no authentication tags.
        """
        issued_at, nonce = time(), token_bytes(NONCE_BYTES)
        proof = IdentityProof(
            certificate=self.certificate_der,
            issued_at=issued_at,
            signature=self.sign_text(_identity_proof_text(self.name, receiver_name, issued_at, nonce, public_key)),
            nonce=nonce,
            public_key=public_key,
        )
        return bytes(proof.SerializeToString())

    @property
    def certificate_der(self) -> bytes:
        """The node's certificate in DER format."""
        return x509.load_pem_x509_certificate(self.certificate).public_bytes(Encoding.DER)

    def sign_text(self, text: bytes) -> bytes:
        """Return the signature of a text by the key of this node's certificate."""
        key = load_pem_private_key(self.private_key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise AuthenticationError(f"the private key of {self.name} is not an elliptic-curve key")
        return key.sign(text, ec.ECDSA(SHA256()))

    def verify_signed_text(self, certificate_der: bytes, make_text: Callable[[str], bytes], signature: bytes) -> str:
        """Verify a signature by another node of this run, and return the node's name.

        Args:
            certificate_der: certificate of the other node, in DER format.
            make_text: returns the text that a node of the given name has signed.
            signature: signature of the text.

        Raises:
            InvalidSignature: another key has signed the text, or the certificate is not of this run.
            ValueError, TypeError, LookupError: the certificate is damaged, or has no elliptic-curve key.
        """
        certificate = x509.load_der_x509_certificate(certificate_der)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(self.ca_certificate))
        name = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise TypeError(f"the certificate of {name} has no elliptic-curve key")
        key.verify(signature, make_text(name), ec.ECDSA(SHA256()))
        return name

    def verify_identity_proof(self, serialised_proof: bytes | None) -> str:
        """Verify a sender's proof of identity, and return the sender's name.

        The sender opens a stream with the proof. A proof is accepted once.

        Raises:
            AuthenticationError: the proof is missing, too old, used before, from another run or for another receiver.
        """
        if serialised_proof is None:
            raise AuthenticationError("the stream carries no identity proof of its sender")
        try:
            proof = IdentityProof.FromString(serialised_proof)
            sender_name = self._verify_proof_sender(proof)
        except PROOF_ERRORS as error:
            raise AuthenticationError("the stream's identity is not of this run, or is for another receiver") from error
        if not abs(time() - proof.issued_at) <= PROOF_LIFETIME_S:  # this refuses NaN, too
            raise AuthenticationError(
                f"the stream's identity proof is too old, or from the future, by more than {PROOF_LIFETIME_S:g} s"
            )
        self.accepted_proofs.add(sender_name, proof.nonce, expires_at=proof.issued_at + PROOF_LIFETIME_S, now=time())
        return sender_name

    def _verify_proof_sender(self, proof: IdentityProof) -> str:
        if len(proof.nonce) != NONCE_BYTES:
            raise ValueError(f"a proof has a nonce of {len(proof.nonce)} bytes")

        def make_text(sender_name: str) -> bytes:
            return _identity_proof_text(sender_name, self.name, proof.issued_at, proof.nonce, proof.public_key)

        return self.verify_signed_text(proof.certificate, make_text, proof.signature)


def claimed_sender_name(serialised_proof: bytes | None) -> str:
    """Return the node name in the certificate of a proof that was not accepted.

    Return an empty text if there is none. The name is a claim of an unknown sender and is only good for a log.
    """
    try:
        certificate = x509.load_der_x509_certificate(IdentityProof.FromString(serialised_proof or b"").certificate)
        return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    except PROOF_ERRORS:
        return ""


def _identity_proof_text(
    sender_name: str, receiver_name: str, issued_at: float, nonce: bytes, public_key: bytes = b""
) -> bytes:
    key = f", key {public_key.hex()}" if public_key else ""
    return f"{sender_name} to {receiver_name} at {issued_at!r}, nonce {nonce.hex()}{key}".encode()
