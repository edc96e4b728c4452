"""Tests of the folder of checkpoints: only complete ones are found, and the newest remain."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.checkpoints import (
    CheckpointError,
    CheckpointFolder,
    CheckpointIdentity,
    CompleteCheckpoint,
    WrittenCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from services.runtime.device import CpuDevice

PLAN = "ab" * 32
DEVICE = CpuDevice("a processor", "a test")
NODES = ("worker-0", "worker-1", "server-0")
WORKERS = NODES[:2]


def write_node_files(folder: CheckpointFolder, step: int, /, **changes: str | int) -> dict[str, WrittenCheckpoint]:
    """Write the files of all nodes in a checkpoint."""
    written = {}
    for node in NODES:
        fields = {"plan_digest": PLAN, "trial": "trial", "node": node, "step": step, "epoch": 1, "samples": 8 * step}
        identity = CheckpointIdentity.model_validate(fields | changes)
        written[node] = write_checkpoint(folder.prepare_node_path(step, node), identity, np.full(9, step), DEVICE)
    return written


def write_complete(folder: CheckpointFolder, step: int) -> None:
    """Write a complete checkpoint."""
    folder.write_manifest(PLAN, "trial", step, WORKERS, write_node_files(folder, step), epoch=1)


def latest_step(folder: CheckpointFolder) -> int | None:
    """Return the step of the latest complete checkpoint."""
    complete = (found for found in folder.check_checkpoints() if isinstance(found, CompleteCheckpoint))
    return next((found.manifest.step for found in complete), None)


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path)


def test_folder_without_checkpoints_has_no_latest_one(folder: CheckpointFolder) -> None:
    """A trial may fail before its first checkpoint."""
    assert latest_step(folder) is None
    folder.remove_all_but_newest(1)


def test_latest_complete_checkpoint_has_all_files_of_its_step(folder: CheckpointFolder) -> None:
    """Steps are compared as numbers, whatever the order of the names."""
    for step in (20, 100, 99_999_999, 100_000_000):
        write_complete(folder, step)

    latest = next(folder.check_checkpoints())

    assert isinstance(latest, CompleteCheckpoint)
    assert latest.folder == folder.trial_folder / "checkpoints" / "step-100000000"
    assert (latest.manifest.step, latest.manifest.epoch, latest.manifest.workers) == (100_000_000, 1, WORKERS)
    assert sorted(path.name for path in latest.folder.iterdir()) == [
        "manifest.json",
        "server-0.ckpt",
        "worker-0.ckpt",
        "worker-1.ckpt",
    ]
    for node in NODES:
        checkpoint = read_checkpoint(latest.node_path(node), PLAN, DEVICE)
        assert (checkpoint.identity.node, checkpoint.state.tolist()) == (node, [100_000_000] * 9)
    assert (folder.path / "step-00000020").is_dir()


def test_checkpoint_without_a_manifest_is_ignored(folder: CheckpointFolder) -> None:
    """Nodes may fail before all have written their files."""
    write_complete(folder, 20)
    write_node_files(folder, 40)

    assert latest_step(folder) == 20
    assert all(isinstance(checkpoint, CompleteCheckpoint) for checkpoint in folder.check_checkpoints())


@pytest.mark.parametrize(
    "damage", ["missing", "truncated", "other file", "manifest", "manifest of another step", "large"]
)
def test_damaged_checkpoint_is_ignored(folder: CheckpointFolder, damage: str) -> None:
    """An earlier checkpoint costs some steps; a damaged one costs the run."""
    write_complete(folder, 20)
    write_complete(folder, 40)
    path, manifest_path = folder.step_folder(40) / "server-0.ckpt", folder.step_folder(40) / "manifest.json"
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(path.read_bytes()[:-1])
        case "other file":
            path.write_bytes((folder.step_folder(20) / "server-0.ckpt").read_bytes())
        case "manifest":
            manifest_path.write_bytes(manifest_path.read_bytes()[:-5])
        case "manifest of another step":
            manifest_path.write_bytes((folder.step_folder(20) / "manifest.json").read_bytes())
        case "large":
            with manifest_path.open("ab") as file:
                file.truncate((16 << 20) + 1)

    assert latest_step(folder) == 20


def test_checkpoint_of_another_plan_is_ignored(folder: CheckpointFolder) -> None:
    """A scenario may have changed since an earlier run in this folder."""
    write_complete(folder, 20)

    assert folder.list_steps_of_node("worker-0", PLAN) == (20,)
    assert folder.list_steps_of_node("worker-0", "cd" * 32) == ()


def test_a_node_checks_its_own_file_only(folder: CheckpointFolder) -> None:
    """All nodes agree on a step that each of them has, so none needs to read the files of the others."""
    write_complete(folder, 20)
    write_complete(folder, 40)
    (folder.step_folder(40) / "server-0.ckpt").unlink()

    assert folder.list_steps_of_node("server-0", PLAN) == (20,)
    assert folder.list_steps_of_node("worker-0", PLAN) == (40, 20)
    assert folder.list_steps_of_node("worker-2", PLAN) == ()


def test_manifest_of_an_incomplete_checkpoint_is_not_written(folder: CheckpointFolder) -> None:
    """A manifest is the claim that all files are there."""
    written = write_node_files(folder, 20)

    with pytest.raises(CheckpointError, match="has no file of worker-2"):
        folder.write_manifest(PLAN, "trial", 20, (*WORKERS, "worker-2"), written, epoch=1)
    (folder.step_folder(20) / "server-0.ckpt").unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        folder.write_manifest(PLAN, "trial", 20, WORKERS, written, epoch=1)
    assert latest_step(folder) is None


@pytest.mark.parametrize("node", ["../worker-0", "a/b", "", ".", ".hidden"])
def test_name_of_a_node_never_leads_out_of_the_folder(folder: CheckpointFolder, node: str) -> None:
    """Names come from other processes and from files."""
    with pytest.raises(ValueError, match="is not the name of a node"):
        folder.prepare_node_path(20, node)

    write_complete(folder, 20)
    path = folder.step_folder(20) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["manifest"]["files"][node] = manifest["manifest"]["files"]["worker-0"]
    path.write_text(json.dumps(manifest))
    assert latest_step(folder) is None


def test_newest_complete_checkpoints_remain(folder: CheckpointFolder) -> None:
    """Incomplete ones do not count, and one that is newer may be in progress."""
    for step in (20, 60, 100):
        write_complete(folder, step)
    for step in (40, 80, 120):
        write_node_files(folder, step)

    folder.remove_all_but_newest(2)

    assert sorted(entry.name for entry in folder.path.iterdir()) == [
        "step-00000060",
        "step-00000080",
        "step-00000100",
        "step-00000120",
    ]
    folder.remove_all_but_newest(5)
    assert latest_step(folder) == 100
    with pytest.raises(ValueError, match="at least one checkpoint must remain"):
        folder.remove_all_but_newest(0)


def test_other_files_in_the_folder_stay(folder: CheckpointFolder) -> None:
    """Only folders that Ensayo has named are its own."""
    for step in (20, 40):
        write_complete(folder, step)
    (folder.path / "notes").mkdir()

    folder.remove_all_but_newest(1)

    assert sorted(entry.name for entry in folder.path.iterdir()) == ["notes", "step-00000040"]


def test_folder_that_cannot_be_created_is_an_error_with_its_reason(tmp_path: Path) -> None:
    """The message must show what is in the way."""
    (tmp_path / "checkpoints").write_text("a file")

    with pytest.raises(CheckpointError, match="its folder can't be created"):
        CheckpointFolder(tmp_path).prepare_node_path(20, "worker-0")


@pytest.mark.parametrize(
    "changes",
    [{"plan_digest": "cd" * 32}, {"trial": "other"}, {"node": "worker-7"}, {"step": 19}, {"epoch": 2}],
    ids=repr,
)
def test_files_of_another_plan_trial_node_step_or_epoch_complete_no_checkpoint(
    folder: CheckpointFolder, changes: dict[str, str | int]
) -> None:
    """A node that was lost for some time may write its file late, in a later epoch of the membership."""
    written = write_node_files(folder, 20, **changes)

    with pytest.raises(CheckpointError, match="is not the file that the manifest of its checkpoint names"):
        folder.write_manifest(PLAN, "trial", 20, WORKERS, written, epoch=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(position=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_altered_manifest_is_ignored_or_has_the_same_meaning(
    folder: CheckpointFolder, position: float, change: int
) -> None:
    """Ranks of workers are only in the manifest; a space may become a tab."""
    if not (folder.path / "step-00000040").exists():
        write_complete(folder, 20)
        write_complete(folder, 40)
    path, latest = folder.step_folder(40) / "manifest.json", next(folder.check_checkpoints())
    content = bytearray(path.read_bytes())
    original = bytes(content)
    content[int(position * len(content))] ^= change
    path.write_bytes(content)
    try:
        found = next(folder.check_checkpoints())
        found_step = latest_step(folder)
    finally:
        path.write_bytes(original)

    assert found == latest or (isinstance(found, CheckpointError) and found_step == 20)
