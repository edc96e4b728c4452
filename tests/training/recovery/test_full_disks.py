"""Events `disk_full`: nodes write no checkpoints for a while, and training goes on."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from recovering_trial import RecoveringTrial

from services.checkpoints import atomic_files
from services.checkpoints.checkpoint_error import CheckpointError
from services.checkpoints.node_disk import EmulatedDiskFullError, NodeDisk
from services.cluster.events import AnyDeclaredEvent, PlannedEvent
from services.plan import COORDINATOR

RING, BSP = {"kind": "all_reduce"}, {"kind": "parameter_server", "servers": 2}
RESTORE = {"on_failure": "restore", "restart_delay": "200ms", "checkpoint": {"steps": 6}}


def full_disk(*nodes: str, step: int = 9, **keys: Any) -> dict[str, Any]:
    """Return an event that fills the disks of these nodes from this step on."""
    return {"kind": "disk_full", "of": list(nodes), "at": {"step": step}, **keys}


def failed_steps(trial: RecoveringTrial) -> dict[str, list[int]]:
    """Return the steps whose checkpoints nodes could not write, of the nodes that have some."""
    found = {
        node: [event["metadata"]["step"] for event in trial.events(node, "checkpoint_failed")] for node in trial.lines
    }
    return {node: steps for node, steps in found.items() if steps}


def complete_steps(trial: RecoveringTrial) -> list[int]:
    return [event["metadata"]["step"] for event in trial.events(COORDINATOR, "checkpoint_complete")]


@pytest.mark.parametrize(
    ("strategy", "nodes"), [(RING, ["worker-1"]), (BSP, ["server-0"]), (BSP, ["servers"]), (RING, ["workers"])]
)
def test_checkpoints_are_incomplete_until_the_disk_has_room_again(
    strategy: dict[str, Any], nodes: list[str], tmp_path: Path
) -> None:
    """Steps take about 25 ms: of the checkpoints, only that of step 12 is due while the disks are full."""
    trial = RecoveringTrial.run(strategy, RESTORE, [full_disk(*nodes, lasts="150ms")], tmp_path / "full")
    undisturbed = RecoveringTrial.run(strategy, RESTORE, [], tmp_path / "undisturbed")

    groups = {"servers": ["server-0", "server-1"], "workers": [f"worker-{rank}" for rank in range(4)]}
    full_nodes = groups.get(nodes[0], nodes)
    assert failed_steps(trial) == {node: [12] for node in full_nodes}
    assert complete_steps(trial) == [6, 18, 24, 30, 36, 42]
    assert trial.samples == trial.budget
    assert trial.params_sha256 == undisturbed.params_sha256
    for node in full_nodes:
        (failure,) = trial.events(node, "checkpoint_failed")
        assert failure["value"]["reason"].startswith("can't be written: No space left on device; the file needs")
        applied = [(event["value"]["phase"], event["value"]["by"]) for event in trial.events(node, "event_applied")]
        assert applied == [("begin", "disk"), ("end", "disk")]
    assert not list((tmp_path / "full").rglob("*.tmp"))


def test_after_a_loss_training_continues_from_a_checkpoint_before_the_full_disk(tmp_path: Path) -> None:
    """The disk of worker-1 stays full, so the checkpoints of steps 12 and 18 are not complete."""
    kill = {"kind": "kill", "of": ["worker-2"], "at": {"step": 20}}
    trial = RecoveringTrial.run(RING, RESTORE, [full_disk("worker-1"), kill], tmp_path / "full")
    undisturbed = RecoveringTrial.run(RING, RESTORE, [], tmp_path / "undisturbed")

    assert {event["metadata"]["step"] for event in trial.events("worker-0", "recovery")} == {6}
    assert failed_steps(trial) == {"worker-1": [12, 18, 12, 18, 24, 30, 36, 42]}
    assert complete_steps(trial) == [6]
    assert trial.samples == trial.budget
    assert trial.params_sha256 == undisturbed.params_sha256


def test_a_disk_stays_full_for_a_worker_that_joins_again(tmp_path: Path) -> None:
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"step": 15}}
    trial = RecoveringTrial.run(RING, RESTORE, [full_disk("worker-1"), kill], tmp_path)

    assert failed_steps(trial) == {"worker-1": [12, 12, 18, 24, 30, 36, 42]}
    assert complete_steps(trial) == [6]


def test_a_disk_of_the_host_that_is_really_full_ends_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an error is not part of the experiment."""

    def refuse(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_files.os, "write", refuse)
    with pytest.raises(ExceptionGroup) as raised:
        RecoveringTrial.run(RING, RESTORE, [full_disk("worker-1", step=40)], tmp_path)

    assert raised.group_contains(CheckpointError, match="No space left on device")


def test_a_disk_has_room_only_after_all_events_that_fill_it(tmp_path: Path) -> None:
    declared = TypeAdapter(AnyDeclaredEvent).validate_python(full_disk("worker-1"))
    first, second = (PlannedEvent(number=number, time_s=None, step=9, change=declared) for number in (1, 2))
    disk, path = NodeDisk(), tmp_path / "file"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        disk.begin_event(first)
        disk.begin_event(second)
        disk.end_event(first)
        with pytest.raises(EmulatedDiskFullError, match="No space left on device"):
            disk.write(descriptor, memoryview(b"lost"))
        disk.end_event(second)
        assert disk.write(descriptor, memoryview(b"kept")) == 4
    finally:
        os.close(descriptor)

    assert path.read_bytes() == b"kept"
