"""Tests of the completion of checkpoints by the coordinator."""

from pathlib import Path

import numpy as np

from services.checkpoints import CheckpointFolder, CheckpointIdentity, CompleteCheckpoint, write_checkpoint
from services.coordinator.checkpoints import CheckpointCompletion
from services.runtime.clock import WallClock
from services.runtime.device import CpuDevice
from services.runtime.membership import CheckpointReport, Membership
from services.runtime.run_log import RunLog

PLAN = "ab" * 32
EPOCH, STEP = 1, 20


def write_and_report(completion: CheckpointCompletion, node: str) -> None:
    """Write the file of a node, and report it."""
    identity = CheckpointIdentity(plan_digest=PLAN, trial="trial", node=node, step=STEP, epoch=EPOCH, samples=8)
    path = completion.folder.prepare_node_path(STEP, node)
    written = write_checkpoint(path, identity, np.full(9, STEP), CpuDevice("a processor", "a test"))
    completion.handle_report(CheckpointReport(node, EPOCH, STEP, written.bytes, written.digest))


def test_checkpoint_is_complete_when_all_members_have_written_their_files(tmp_path: Path) -> None:
    """The file of a worker that is not a member replaces none of the others."""
    membership = Membership(EPOCH, ("worker-0", "worker-2"))
    log = RunLog("", WallClock(), lambda _line: None)
    completion = CheckpointCompletion(CheckpointFolder(tmp_path), PLAN, "trial", ("server-0",), lambda: membership, log)

    for node in ("worker-0", "worker-1", "server-0"):
        write_and_report(completion, node)
    assert list(completion.folder.check_checkpoints()) == []

    write_and_report(completion, "worker-2")
    (checkpoint,) = completion.folder.check_checkpoints()
    assert isinstance(checkpoint, CompleteCheckpoint)
    assert sorted(checkpoint.manifest.files) == ["server-0", "worker-0", "worker-2"]
