"""Fuzz targets of the readers of checkpoint files and of the manifests that name them."""

from fuzz_targets.target import empty_folder
from services.checkpoints.checkpoint_error import CheckpointError
from services.checkpoints.files import read_checkpoint
from services.checkpoints.folder import MANIFEST_NAME, CheckpointFolder
from services.runtime.device import select_compute_device

PLAN_DIGEST = "a" * 64  # of the seed


def read_checkpoint_file(content: bytes) -> None:
    """Read the checkpoint file of a node."""
    path = empty_folder("checkpoint") / "worker-0.ckpt"
    path.write_bytes(content)
    read_checkpoint(path, PLAN_DIGEST, select_compute_device("cpu"))


def read_checkpoint_manifest(content: bytes) -> None:
    """Read the manifest of a checkpoint whose files are missing, as one node and as the coordinator."""
    folder = CheckpointFolder(empty_folder("checkpoints"))
    manifest = folder.step_folder(3) / MANIFEST_NAME
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(content)
    assert not folder.can_continue_from(3, "worker-0", PLAN_DIGEST)
    for found in folder.check_checkpoints():
        if isinstance(found, CheckpointError):
            raise found
