"""A stream is accepted from the nodes of this run, addressed to this node, now; from nobody else."""

from pathlib import Path

import pytest

from compose.runs.certificates import issue
from services.runtime import identity as module
from services.runtime.identity import FRESH_S, Identity
from services.schema.errors import Refused
from services.wire.data_pb2 import Identity as Proof


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, Identity]:
    """Two nodes of one run, and one of another that has the same name."""
    issue("mine", ["a", "b"], tmp_path / "mine")
    issue("other", ["b"], tmp_path / "other")
    return {
        "a": Identity.read("a", tmp_path / "mine" / "a"),
        "b": Identity.read("b", tmp_path / "mine" / "b"),
        "stranger": Identity.read("b", tmp_path / "other" / "b"),
    }


def test_a_node_of_the_run_is_known_by_its_name(nodes: dict[str, Identity]) -> None:
    """The receiver believes the certificate, not what the sender calls itself."""
    assert nodes["a"].check(nodes["b"].prove("a")) == "b"


def test_a_stream_without_identity_is_refused(nodes: dict[str, Identity]) -> None:
    with pytest.raises(Refused, match="carries no identity"):
        nodes["a"].check(None)


@pytest.mark.parametrize("metadata", [b"", b"garbage", b"\x0a\xff\xff\xff\xff", bytes(300)])
def test_garbage_is_refused_and_not_a_crash(nodes: dict[str, Identity], metadata: bytes) -> None:
    """Whatever a stranger sends, the answer is the same."""
    with pytest.raises(Refused):
        nodes["a"].check(metadata)


def test_a_node_of_another_run_is_refused(nodes: dict[str, Identity]) -> None:
    """The same name under another authority is somebody else."""
    with pytest.raises(Refused, match="not of this run"):
        nodes["a"].check(nodes["stranger"].prove("a"))


def test_a_proof_for_another_receiver_is_refused(nodes: dict[str, Identity]) -> None:
    """Who receives a proof must not be able to use it elsewhere."""
    with pytest.raises(Refused, match="not of this run"):
        nodes["a"].check(nodes["b"].prove("b"))


@pytest.mark.parametrize("shift_s", [-FRESH_S - 10, FRESH_S + 10])
def test_an_old_proof_and_one_from_the_future_are_refused(
    nodes: dict[str, Identity], monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    """They are recordings, or prepared ones."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "time", lambda: __import__("time").time() + shift_s)
        proof = nodes["b"].prove("a")

    with pytest.raises(Refused, match="too old"):
        nodes["a"].check(proof)


def test_a_proof_whose_time_was_changed_is_refused(nodes: dict[str, Identity]) -> None:
    """The signature covers the time: an old proof can't be freshened."""
    proof = Proof.FromString(nodes["b"].prove("a"))
    proof.issued_at += 1

    with pytest.raises(Refused, match="not of this run"):
        nodes["a"].check(proof.SerializeToString())


def test_a_certificate_alone_proves_nothing(nodes: dict[str, Identity]) -> None:
    """Certificates are public; the signature needs the key."""
    proof = Proof.FromString(nodes["b"].prove("a"))
    proof.signature = b""

    with pytest.raises(Refused, match="not of this run"):
        nodes["a"].check(proof.SerializeToString())
