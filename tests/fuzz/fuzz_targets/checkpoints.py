"""Fuzz target of the reader of checkpoint files."""

from fuzz_targets.target import empty_folder
from services.checkpoints.files import read_checkpoint
from services.runtime.device import select_compute_device

PLAN_DIGEST = "a" * 64  # of the seed


def read_checkpoint_file(content: bytes) -> None:
    """Read the checkpoint file of a node."""
    path = empty_folder("checkpoint") / "worker-0.ckpt"
    path.write_bytes(content)
    read_checkpoint(path, PLAN_DIGEST, select_compute_device("cpu"))
