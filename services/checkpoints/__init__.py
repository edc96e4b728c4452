"""Checkpoints of a trial: the states of all nodes after a step, in files that are verified when they are read."""

from services.checkpoints.checkpoint_error import CheckpointError
from services.checkpoints.file_format import CheckpointIdentity
from services.checkpoints.files import Checkpoint, WrittenCheckpoint, read_checkpoint, write_checkpoint
from services.checkpoints.folder import CheckpointFolder, CheckpointManifest, CompleteCheckpoint
from services.checkpoints.state_tree import UnstorableState

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointFolder",
    "CheckpointIdentity",
    "CheckpointManifest",
    "CompleteCheckpoint",
    "UnstorableState",
    "WrittenCheckpoint",
    "read_checkpoint",
    "write_checkpoint",
]
