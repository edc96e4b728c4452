"""A node accepts a stream only from nodes of its run, addressed to it, with a recent proof."""

import math
from pathlib import Path

import pytest

from compose.runs.certificates import issue_certificates
from services.runtime import identity as identity_module
from services.runtime.identity import PROOF_LIFETIME_S, NodeIdentity
from services.runtime.proof_memory import ProofMemory
from services.schema.errors import AuthenticationError
from services.wire.data_pb2 import IdentityProof


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, NodeIdentity]:
    """Two nodes of one run, and a node of another run that has the same name as one of them."""
    issue_certificates("mine", ["a", "b"], tmp_path / "mine")
    issue_certificates("other", ["b"], tmp_path / "other")
    return {
        "a": NodeIdentity.read("a", tmp_path / "mine" / "a"),
        "b": NodeIdentity.read("b", tmp_path / "mine" / "b"),
        "other_run": NodeIdentity.read("b", tmp_path / "other" / "b"),
    }


def test_the_certificate_gives_the_name_of_a_node_of_the_run(nodes: dict[str, NodeIdentity]) -> None:
    """The receiver trusts the certificate, not the name that the sender states."""
    assert nodes["a"].verify_identity_proof(nodes["b"].make_identity_proof("a")) == "b"


def test_a_stream_without_identity_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    with pytest.raises(AuthenticationError, match="carries no identity proof"):
        nodes["a"].verify_identity_proof(None)


@pytest.mark.parametrize("metadata", [b"", b"garbage", b"\x0a\xff\xff\xff\xff", bytes(300)])
def test_invalid_bytes_are_refused_without_a_crash(nodes: dict[str, NodeIdentity], metadata: bytes) -> None:
    """The error is the same for all invalid bytes."""
    with pytest.raises(AuthenticationError):
        nodes["a"].verify_identity_proof(metadata)


def test_a_node_of_another_run_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """The same name under another certificate authority is another node."""
    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(nodes["other_run"].make_identity_proof("a"))


def test_a_proof_for_another_receiver_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """The receiver of a proof must not be able to use it at another node."""
    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(nodes["b"].make_identity_proof("b"))


@pytest.mark.parametrize("shift_s", [-PROOF_LIFETIME_S - 10, PROOF_LIFETIME_S + 10, math.nan])
def test_old_proofs_and_proofs_from_the_future_are_refused(
    nodes: dict[str, NodeIdentity], monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    """Such proofs are recorded, or prepared in advance; one without a time would never be forgotten."""
    with monkeypatch.context() as patch:
        patch.setattr(identity_module, "time", lambda: __import__("time").time() + shift_s)
        proof = nodes["b"].make_identity_proof("a")

    with pytest.raises(AuthenticationError, match="too old"):
        nodes["a"].verify_identity_proof(proof)


def test_a_proof_whose_time_was_changed_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """The signature covers the time: the time of an old proof can't be updated."""
    proof = IdentityProof.FromString(nodes["b"].make_identity_proof("a"))
    proof.issued_at += 1

    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(proof.SerializeToString())


def test_a_certificate_without_a_signature_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """Certificates are public; only the owner of the private key can sign."""
    proof = IdentityProof.FromString(nodes["b"].make_identity_proof("a"))
    proof.signature = b""

    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(proof.SerializeToString())


def test_a_proof_is_accepted_once(nodes: dict[str, NodeIdentity]) -> None:
    """The recorded beginning of a stream must not open another stream within the lifetime of its proof."""
    proof = nodes["b"].make_identity_proof("a")
    assert nodes["a"].verify_identity_proof(proof) == "b"

    with pytest.raises(AuthenticationError, match="was used before"):
        nodes["a"].verify_identity_proof(proof)

    assert nodes["a"].verify_identity_proof(nodes["b"].make_identity_proof("a")) == "b", "a new proof is accepted"


def test_a_replayed_proof_with_another_encoding_or_nonce_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """The memory compares what is signed: protobuf has several encodings of a message, and ECDSA two signatures."""
    serialised = nodes["b"].make_identity_proof("a")
    nodes["a"].verify_identity_proof(serialised)
    proof = IdentityProof.FromString(serialised)
    reordered = b"".join(
        IdentityProof(**{name: getattr(proof, name)}).SerializeToString()
        for name in ("nonce", "signature", "issued_at", "certificate")
    )
    proof.nonce = bytes(16)

    with pytest.raises(AuthenticationError, match="was used before"):
        nodes["a"].verify_identity_proof(reordered)
    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(proof.SerializeToString())


def test_the_memory_of_proofs_is_bounded_and_forgets_expired_ones_only() -> None:
    """A full memory refuses new streams: to forget a valid proof would allow its replay."""
    memory = ProofMemory(max_proofs=2)
    memory.add("b", b"first", expires_at=10.0, now=0.0)
    memory.add("b", b"second", expires_at=20.0, now=0.0)

    with pytest.raises(AuthenticationError, match="more than 2"):
        memory.add("b", b"third", expires_at=30.0, now=5.0)
    memory.add("b", b"third", expires_at=30.0, now=15.0)
    with pytest.raises(AuthenticationError, match="was used before"):
        memory.add("b", b"second", expires_at=20.0, now=15.0)
    assert len(memory) == 2


def test_an_error_message_does_not_contain_the_private_key(nodes: dict[str, NodeIdentity]) -> None:
    """Tracebacks and test reports print records."""
    assert b"PRIVATE KEY" in nodes["a"].private_key
    assert "PRIVATE KEY" not in repr(nodes["a"])
