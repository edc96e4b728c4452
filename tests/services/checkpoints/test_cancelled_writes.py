"""A checkpoint write that a new membership epoch cancels does not damage the next write of the same file."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from services.checkpoints.files import read_checkpoint
from services.checkpoints.folder import CheckpointFolder
from services.checkpoints.node_checkpoints import NodeCheckpoints
from services.checkpoints.node_disk import NodeDisk
from services.checkpoints.schedules import StepSchedule
from services.runtime.clock import WallClock
from services.runtime.device import select_compute_device
from services.runtime.membership import CheckpointReport
from services.runtime.run_log import RunLog

PLAN_DIGEST = "0" * 64


class SlowDisk(NodeDisk):
    """Disk that writes 64 KiB in 10 ms."""

    def write(self, descriptor: int, data: memoryview) -> int:
        time.sleep(0.01)
        return os.write(descriptor, data[: 1 << 16])


class RecordedReports:
    """Coordinator that records from which membership epochs it gets reports."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    async def report_checkpoint(self, report: CheckpointReport) -> None:
        self.epochs.append(report.epoch)


def test_a_cancelled_write_ends_before_the_file_is_written_again(tmp_path: Path) -> None:
    """The file has the state of the second write, and no temporary file is left."""
    reports, clock = RecordedReports(), WallClock()
    checkpoints = NodeCheckpoints(
        CheckpointFolder(tmp_path),
        PLAN_DIGEST,
        "trial",
        "worker-0",
        schedule=StepSchedule(6),
        first_step=0,
        device=select_compute_device("cpu"),
        client=cast("Any", reports),
        clock=clock,
        log=RunLog("worker-0", clock, lambda line: None),
        disk=SlowDisk(),
    )

    async def write_twice() -> None:
        first = asyncio.create_task(checkpoints.write(6, 0, 10, np.full(100_000, 1.0)))
        await asyncio.sleep(0.05)  # of about 0.13 s
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await checkpoints.write(6, 1, 10, np.full(100_000, 2.0))

    asyncio.run(write_twice())

    path = checkpoints.folder.node_path(6, "worker-0")
    found = read_checkpoint(path, PLAN_DIGEST, checkpoints.device)
    assert found.identity.epoch == 1
    assert float(np.asarray(cast("Any", found.state))[0]) == 2.0
    assert reports.epochs == [1]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
