"""Error of a checkpoint that can't be written or read."""

from pathlib import Path

from services.schema.errors import EnsayoError


class CheckpointError(EnsayoError):
    """Error because a file of a checkpoint can't be written, or is not what its reader expects.

    The message names the file and the reason: the file is truncated or altered, belongs to another plan or format
    version, or the operating system reports an error such as a full disk.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"checkpoint {path}: {reason}")
        self.path = path
        self.reason = reason
