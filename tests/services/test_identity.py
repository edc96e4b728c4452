"""A stream is accepted from the nodes of this run, addressed to this node, now; from nobody else."""

from pathlib import Path

import pytest

from compose.runs.certificates import issue_certificates
from services.runtime import identity as module
from services.runtime.identity import PROOF_LIFETIME_S, NodeIdentity
from services.schema.errors import AuthenticationError
from services.wire.data_pb2 import IdentityProof


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, NodeIdentity]:
    """Two nodes of one run, and one of another that has the same name."""
    issue_certificates("mine", ["a", "b"], tmp_path / "mine")
    issue_certificates("other", ["b"], tmp_path / "other")
    return {
        "a": NodeIdentity.read("a", tmp_path / "mine" / "a"),
        "b": NodeIdentity.read("b", tmp_path / "mine" / "b"),
        "stranger": NodeIdentity.read("b", tmp_path / "other" / "b"),
    }


def test_a_node_of_the_run_is_known_by_its_name(nodes: dict[str, NodeIdentity]) -> None:
    """The receiver believes the certificate, not what the sender calls itself."""
    assert nodes["a"].verify_identity_proof(nodes["b"].make_identity_proof("a")) == "b"


def test_a_stream_without_identity_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    with pytest.raises(AuthenticationError, match="carries no identity proof"):
        nodes["a"].verify_identity_proof(None)


@pytest.mark.parametrize("metadata", [b"", b"garbage", b"\x0a\xff\xff\xff\xff", bytes(300)])
def test_garbage_is_refused_and_not_a_crash(nodes: dict[str, NodeIdentity], metadata: bytes) -> None:
    """Whatever a stranger sends, the answer is the same."""
    with pytest.raises(AuthenticationError):
        nodes["a"].verify_identity_proof(metadata)


def test_a_node_of_another_run_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """The same name under another authority is somebody else."""
    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(nodes["stranger"].make_identity_proof("a"))


def test_a_proof_for_another_receiver_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """Who receives a proof must not be able to use it elsewhere."""
    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(nodes["b"].make_identity_proof("b"))


@pytest.mark.parametrize("shift_s", [-PROOF_LIFETIME_S - 10, PROOF_LIFETIME_S + 10])
def test_an_old_proof_and_one_from_the_future_are_refused(
    nodes: dict[str, NodeIdentity], monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    """They are recordings, or prepared ones."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "time", lambda: __import__("time").time() + shift_s)
        proof = nodes["b"].make_identity_proof("a")

    with pytest.raises(AuthenticationError, match="too old"):
        nodes["a"].verify_identity_proof(proof)


def test_a_proof_whose_time_was_changed_is_refused(nodes: dict[str, NodeIdentity]) -> None:
    """The signature covers the time: an old proof can't be freshened."""
    proof = IdentityProof.FromString(nodes["b"].make_identity_proof("a"))
    proof.issued_at += 1

    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(proof.SerializeToString())


def test_a_certificate_alone_proves_nothing(nodes: dict[str, NodeIdentity]) -> None:
    """Certificates are public; the signature needs the key."""
    proof = IdentityProof.FromString(nodes["b"].make_identity_proof("a"))
    proof.signature = b""

    with pytest.raises(AuthenticationError, match="not of this run"):
        nodes["a"].verify_identity_proof(proof.SerializeToString())
