"""Who is a node? A certificate of the run's own authority, and signatures that prove it on data streams."""

from dataclasses import dataclass
from pathlib import Path
from time import time

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID
from google.protobuf.message import DecodeError

from services.schema.errors import Refused
from services.wire.data_pb2 import Identity as Proof

FRESH_S = 300.0  # a proof is made when a stream is opened; older ones are somebody's recording
AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"


@dataclass(frozen=True)
class Identity:
    """A node's name, certificate and key, and the authority that it trusts; all PEM."""

    name: str
    authority: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, name: str, folder: Path) -> "Identity":
        """The identity that an engine has laid into `folder`."""
        return cls(name, *((folder / file).read_bytes() for file in (AUTHORITY, CERTIFICATE, KEY)))

    def prove(self, to: str) -> bytes:
        """Metadata for a stream to the node `to`."""
        key, issued_at = load_pem_private_key(self.key, None), time()
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Refused("a node's key is an elliptic-curve key")
        certificate = x509.load_pem_x509_certificate(self.certificate).public_bytes(Encoding.DER)
        signature = key.sign(_claim(self.name, to, issued_at), ec.ECDSA(SHA256()))
        return bytes(Proof(certificate=certificate, issued_at=issued_at, signature=signature).SerializeToString())

    def check(self, metadata: bytes | None) -> str:
        """The name of the node that opens a stream to this one.

        Raises:
            Refused: no proof, or one of another run, of another receiver, or too old.
        """
        if metadata is None:
            raise Refused("the stream carries no identity")
        try:
            proof = Proof.FromString(metadata)
            sender = self._sender(proof)
        except (InvalidSignature, DecodeError, ValueError, TypeError) as error:
            raise Refused("the stream's identity is not of this run") from error
        if abs(time() - proof.issued_at) > FRESH_S:
            raise Refused("the stream's identity is too old")
        return sender

    def _sender(self, proof: Proof) -> str:
        certificate = x509.load_der_x509_certificate(proof.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(self.authority))
        name = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise TypeError("a node's key is an elliptic-curve key")
        key.verify(proof.signature, _claim(name, self.name, proof.issued_at), ec.ECDSA(SHA256()))
        return name


def _claim(sender: str, receiver: str, issued_at: float) -> bytes:
    return f"{sender} to {receiver} at {issued_at!r}".encode()
