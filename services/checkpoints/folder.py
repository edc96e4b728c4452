"""Folder with the checkpoints of a trial: one folder per step, complete when its manifest names all files.

`checkpoints/step-00000120/` in the folder of a trial has the file `<node>.ckpt` of every node, and `manifest.json`. The
coordinator writes the manifest when all nodes have written their files. Until then the checkpoint is not complete, and
readers ignore it.
"""

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError, field_validator

from services.checkpoints.atomic_files import synchronise_folder, write_file_atomically
from services.checkpoints.checkpoint_error import CheckpointError
from services.checkpoints.file_format import DIGEST_PATTERN, CheckpointIdentity
from services.checkpoints.files import WrittenCheckpoint, describe_checkpoint
from services.schema.component import FrozenRecord
from services.schema.errors import os_error_cause

FOLDER_NAME = "checkpoints"
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 16 << 20
MANIFEST_VERSION = 1
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
STEP_FOLDER_NAME = re.compile(r"step-(\d{8,})")


class ManifestFile(FrozenRecord):
    """Size and digest of the checkpoint file of one node."""

    bytes: int = Field(ge=0)
    digest: str = Field(pattern=DIGEST_PATTERN)  # SHA-256 digest of the file's header, which has that of the data


class CheckpointManifest(FrozenRecord):
    """Files of a complete checkpoint, with the membership of the trial at this time."""

    version: int = Field(MANIFEST_VERSION, ge=MANIFEST_VERSION, le=MANIFEST_VERSION)
    plan_digest: str = Field(pattern=DIGEST_PATTERN)
    trial: str
    step: int = Field(ge=0)  # number of finished steps
    epoch: int = Field(0, ge=0)  # of the membership
    workers: tuple[str, ...]  # names of the workers, by rank
    files: dict[str, ManifestFile]  # by name of the node

    @field_validator("files")
    @classmethod
    def _check_node_names(cls, files: dict[str, ManifestFile]) -> dict[str, ManifestFile]:
        for node in files:
            check_node_name(node)
        return files

    def identity_of(self, node: str) -> CheckpointIdentity:
        """Return the identity that the file of a node must have, apart from its number of samples."""
        return CheckpointIdentity(
            plan_digest=self.plan_digest, trial=self.trial, node=node, step=self.step, epoch=self.epoch
        )


class ManifestDocument(FrozenRecord):
    """Content of a manifest file: the manifest, and its digest."""

    manifest: CheckpointManifest
    digest: str  # SHA-256 digest of the manifest as JSON

    @classmethod
    def of_manifest(cls, manifest: CheckpointManifest) -> "ManifestDocument":
        """Return the document of a manifest, with its digest."""
        return cls(manifest=manifest, digest=hashlib.sha256(manifest.model_dump_json().encode()).hexdigest())


class CompleteCheckpoint(NamedTuple):
    """A complete checkpoint, whose files have the sizes and headers that its manifest names."""

    folder: Path
    manifest: CheckpointManifest

    def node_path(self, node: str) -> Path:
        """Return the checkpoint file of a node."""
        return _node_path(self.folder, node)


@dataclass(frozen=True)
class CheckpointFolder:
    """Folder with all checkpoints of one trial."""

    trial_folder: Path

    @property
    def path(self) -> Path:
        """The folder with one folder per step."""
        return self.trial_folder / FOLDER_NAME

    def step_folder(self, step: int) -> Path:
        """Return the folder of the checkpoint after `step` steps."""
        return self.path / f"step-{step:08}"

    def prepare_node_path(self, step: int, node: str) -> Path:
        """Return the file of a node in the checkpoint after `step` steps, and create its folder.

        Raises:
            CheckpointError: the folder can't be created.
        """
        folder = self.step_folder(step)
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                for changed in (self.path, self.trial_folder):
                    synchronise_folder(changed)
        except OSError as error:
            raise CheckpointError(folder, f"its folder can't be created: {os_error_cause(error)}") from error
        return self.node_path(step, node)

    def node_path(self, step: int, node: str) -> Path:
        """Return the file of a node in the checkpoint after `step` steps."""
        return _node_path(self.step_folder(step), node)

    def write_manifest(
        self,
        plan_digest: str,
        trial: str,
        step: int,
        workers: tuple[str, ...],
        files: Mapping[str, WrittenCheckpoint],
        epoch: int = 0,
    ) -> CompleteCheckpoint:
        """Write the manifest of a checkpoint whose files are all written, which completes it.

        Args:
            plan_digest: digest of the trial plan.
            trial: name of the trial.
            step: number of finished steps.
            workers: names of the workers, by rank.
            files: what each node has written, by name of the node: the workers, and servers if there are any.
            epoch: number of the membership epoch.

        Raises:
            CheckpointError: a file is missing or differs, or the manifest can't be written.
        """
        manifest = CheckpointManifest(
            plan_digest=plan_digest,
            trial=trial,
            step=step,
            epoch=epoch,
            workers=workers,
            files={node: ManifestFile(**written._asdict()) for node, written in files.items()},
        )
        checkpoint = CompleteCheckpoint(self.step_folder(step), manifest)
        _check_files(checkpoint)
        content = ManifestDocument.of_manifest(manifest).model_dump_json(indent=1).encode()
        write_file_atomically(checkpoint.folder / MANIFEST_NAME, [content], len(content))
        return checkpoint

    def check_checkpoints(self) -> Iterator[CompleteCheckpoint | CheckpointError]:
        """Yield each checkpoint that has a manifest, the newest first; of a damaged one the error.

        Sizes and headers of all files are compared with the manifest. The data of the files are verified when they are
        read. A checkpoint without a manifest was not complete.
        """
        for folder in self._list_step_folders():
            try:
                checkpoint = CompleteCheckpoint(folder, _read_manifest(folder))
                _check_files(checkpoint)
            except CheckpointError as error:
                if (folder / MANIFEST_NAME).exists():
                    yield error
            else:
                yield checkpoint

    def can_continue_from(self, step: int, node: str, plan_digest: str) -> bool:
        """Return whether a node can continue from the checkpoint of a plan after `step` steps.

        The checkpoint has a manifest, and the file of the node that it names. Each node checks its own file only: 1,000
        nodes that check all files would read a million.
        """
        try:
            checkpoint = CompleteCheckpoint(self.step_folder(step), _read_manifest(self.step_folder(step)))
            if checkpoint.manifest.plan_digest != plan_digest or node not in checkpoint.manifest.files:
                return False
            _check_file(checkpoint, node)
        except CheckpointError:
            return False
        return True

    def list_steps_of_node(self, node: str, plan_digest: str) -> tuple[int, ...]:
        """Return the steps of the checkpoints of a plan from which a node can continue, the newest first."""
        steps = map(_step_of_folder, self._list_step_folders())
        return tuple(step for step in steps if self.can_continue_from(step, node, plan_digest))

    def remove_all_but_newest(self, count: int) -> None:
        """Remove all checkpoints that are older than the newest `count` complete ones.

        A checkpoint that is newer than these may be one that nodes are writing, and stays.

        Raises:
            CheckpointError: a checkpoint can't be removed.
        """
        if count < 1:
            raise ValueError(f"at least one checkpoint must remain, not {count}")
        kept = [found.folder for _, found in zip(range(count), self._list_complete(), strict=False)]
        if len(kept) < count:
            return
        for folder in self._list_step_folders():
            if _step_of_folder(folder) < _step_of_folder(kept[-1]):
                _remove_step_folder(folder)

    def _list_complete(self) -> Iterator[CompleteCheckpoint]:
        """Yield the complete checkpoints, the newest first."""
        return (found for found in self.check_checkpoints() if isinstance(found, CompleteCheckpoint))

    def _list_step_folders(self) -> list[Path]:
        """Return the folders of all checkpoints, the newest first."""
        try:
            folders = [entry for entry in self.path.iterdir() if STEP_FOLDER_NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(self.path, f"can't be read: {os_error_cause(error)}") from error
        return sorted(folders, key=_step_of_folder, reverse=True)


def check_node_name(node: str) -> None:
    """Raise a ValueError for a name that can't be the name of a file."""
    if not NODE_NAME.fullmatch(node):
        raise ValueError(f"{node!r} is not the name of a node")


def _node_path(folder: Path, node: str) -> Path:
    check_node_name(node)
    return folder / f"{node}.ckpt"


def _step_of_folder(folder: Path) -> int:
    """Return the number of steps in the name of a checkpoint's folder."""
    return int(folder.name.removeprefix("step-"))


def _read_manifest(folder: Path) -> CheckpointManifest:
    """Return the manifest of a checkpoint."""
    path = folder / MANIFEST_NAME
    try:
        size = path.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise CheckpointError(path, f"has {size:,} bytes; {MAX_MANIFEST_BYTES:,} are allowed")
        manifest = _decode_manifest(path.read_bytes())
    except OSError as error:
        raise CheckpointError(path, f"can't be read: {os_error_cause(error)}") from error
    except ValidationError as error:
        raise CheckpointError(path, f"is not valid: {error.errors()[0]['msg']}") from error
    if manifest is None:
        raise CheckpointError(path, "is altered: the SHA-256 digest differs")
    if manifest.step != _step_of_folder(folder):
        raise CheckpointError(path, f"is that of step {manifest.step}")
    return manifest


@lru_cache(maxsize=4)  # for the nodes of a simulated trial, which all read the same manifests
def _decode_manifest(content: bytes) -> CheckpointManifest | None:
    """Return the manifest in the content of a file; None if it is altered.

    Raises:
        ValidationError: the content is not valid.
    """
    document = ManifestDocument.model_validate_json(content)
    return document.manifest if document == ManifestDocument.of_manifest(document.manifest) else None


def _check_files(checkpoint: CompleteCheckpoint) -> None:
    """Compare sizes and headers of all files with the manifest.

    Raises:
        CheckpointError: a file is missing, truncated, or another one, such as that of another step.
    """
    manifest = checkpoint.manifest
    for worker in manifest.workers:
        if worker not in manifest.files:
            raise CheckpointError(checkpoint.folder / MANIFEST_NAME, f"has no file of {worker}")
    for node in manifest.files:
        _check_file(checkpoint, node)


def _check_file(checkpoint: CompleteCheckpoint, node: str) -> None:
    """Compare size and header of the file of a node with the manifest.

    Raises:
        CheckpointError: the file is missing, truncated, or another one, such as that of another step.
    """
    path, expected = checkpoint.node_path(node), checkpoint.manifest.files[node]
    identity, written = describe_checkpoint(path)
    is_expected = identity.model_copy(update={"samples": 0}) == checkpoint.manifest.identity_of(node)
    if not is_expected or written != (expected.bytes, expected.digest):
        raise CheckpointError(path, "is not the file that the manifest of its checkpoint names")


def _remove_step_folder(folder: Path) -> None:
    """Remove a checkpoint, its manifest first, so that a reader never finds a part of a complete checkpoint."""
    try:
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        synchronise_folder(folder)
        shutil.rmtree(folder)
    except OSError as error:
        raise CheckpointError(folder, f"can't be removed: {os_error_cause(error)}") from error
