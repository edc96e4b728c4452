"""Exit codes by which engines distinguish lost nodes from nodes with an error."""

from pathlib import Path

import pytest

from services.checkpoints.checkpoint_error import CheckpointError
from services.node.exit_codes import EXIT_EVICTED, EXIT_FAILED, exit_code_of
from services.schema.errors import EvictedError, PeerUnreachable, ProtocolError

EVICTED, UNREACHABLE = EvictedError("training goes on without it"), PeerUnreachable("worker-0 broke off its stream")


@pytest.mark.parametrize(
    ("errors", "exit_code"),
    [
        ([], 0),
        ([UNREACHABLE], EXIT_FAILED),
        ([EVICTED], EXIT_EVICTED),
        ([UNREACHABLE, EVICTED], EXIT_EVICTED),
        ([CheckpointError(Path("worker-1.ckpt"), "the disk is full"), EVICTED], EXIT_FAILED),
        ([EVICTED, ProtocolError("a message is missing")], EXIT_FAILED),
    ],
    ids=lambda value: " and ".join(type(error).__name__ for error in value) if isinstance(value, list) else str(value),
)
def test_only_an_eviction_without_errors_of_its_own_counts_as_one(errors: list[Exception], exit_code: int) -> None:
    """Engines tolerate evicted nodes and start them again: that would hide an error of the node itself."""
    assert exit_code_of(errors) == exit_code
