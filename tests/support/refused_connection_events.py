"""What processes do that must be refused, and the events that a node logs about it."""

import json
from collections.abc import Iterable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from services.runtime.identity import NodeIdentity, _identity_proof_text
from services.runtime.run_log import LOG_LINE_PREFIX
from services.wire.data_pb2 import IdentityProof


def refused_connections(log_lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the values of the events `refused_connection` in the lines of a log."""
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in log_lines]
    return [event["value"] for event in events if event["key"] == "refused_connection"]


def make_proof_in_other_name(liar: NodeIdentity, claimed: NodeIdentity, receiver_name: str, issued_at: float) -> bytes:
    """Return a proof with the certificate of `claimed`, signed by `liar`, another node of the same run."""
    key = serialization.load_pem_private_key(liar.private_key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    nonce = bytes(range(16))
    signature = key.sign(_identity_proof_text(claimed.name, receiver_name, issued_at, nonce), ec.ECDSA(SHA256()))
    certificate = x509.load_pem_x509_certificate(claimed.certificate).public_bytes(serialization.Encoding.DER)
    proof = IdentityProof(certificate=certificate, issued_at=issued_at, signature=signature, nonce=nonce)
    return bytes(proof.SerializeToString())
