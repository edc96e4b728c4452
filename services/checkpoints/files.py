"""Checkpoint files: the state of one node after a step, in one file that is verified when it is read."""

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

import numpy as np
from pydantic import ValidationError

from services.checkpoints.atomic_files import WriteBytes, write_file_atomically
from services.checkpoints.checkpoint_error import CheckpointError
from services.checkpoints.file_format import (
    FORMAT_VERSION,
    MAGIC,
    MAX_HEADER_BYTES,
    PREFIX,
    CheckpointHeader,
    CheckpointIdentity,
    FilePrefix,
    StoredArray,
    round_up,
)
from services.checkpoints.state_classes import STATE_CLASSES, StateClass
from services.checkpoints.state_tree import EncodedState, InvalidStateTree, State, decode_state, encode_state
from services.runtime.device import ComputeDevice
from services.runtime.transport import Buffer
from services.schema.arrays import Array, HostArray
from services.schema.errors import os_error_cause

ResultT = TypeVar("ResultT")


class Checkpoint(NamedTuple):
    """State of a node that was read from a checkpoint file."""

    identity: CheckpointIdentity
    state: State
    has_device_arrays: bool  # whether an array was on a device with its own memory when it was written


class WrittenCheckpoint(NamedTuple):
    """Size and digest of a checkpoint file."""

    bytes: int
    digest: str  # SHA-256 digest of the header, which contains the digest of the data


def write_checkpoint(
    path: Path,
    identity: CheckpointIdentity,
    state: State,
    device: ComputeDevice,
    classes: Sequence[StateClass] = STATE_CLASSES,
    *,
    waits_for_disk: bool = True,
    write: WriteBytes | None = None,
) -> WrittenCheckpoint:
    """Write the state of a node to a file. The file has the whole new state, or is the same as before.

    Args:
        path: the file; its folder exists.
        identity: whose state it is.
        state: the state, of types that `encode_state` can store.
        device: device on which the arrays of the state are.
        classes: classes of the records that the state may contain.
        waits_for_disk: whether the file is on the storage device when this function returns.
        write: writes bytes to the open file; None: `os.write`.

    Raises:
        CheckpointError: the file can't be written, for example because the file system is full.
        UnstorableState: the state has a value of another type.
    """
    encoded = encode_state(state, device.to_host, classes)
    return _write_encoded_state(path, identity, encoded, waits_for_disk=waits_for_disk, write=write)


def _write_encoded_state(
    path: Path,
    identity: CheckpointIdentity,
    encoded: EncodedState,
    *,
    waits_for_disk: bool,
    write: WriteBytes | None = None,
) -> WrittenCheckpoint:
    structure, arrays = encoded
    stored, data = _arrange_arrays(arrays)
    digest = hashlib.sha256()
    for part in data:
        digest.update(part)
    header = CheckpointHeader(identity=identity, structure=structure, arrays=stored, data_digest=digest.hexdigest())
    header_bytes = header.model_dump_json().encode()
    if len(header_bytes) > MAX_HEADER_BYTES:
        raise CheckpointError(path, f"its header has {len(header_bytes):,} bytes; {MAX_HEADER_BYTES:,} are allowed")
    prefix = FilePrefix.of_header(header_bytes)
    gap = bytes(prefix.data_start - PREFIX.size - len(header_bytes))
    file_bytes = prefix.data_start + header.data_bytes
    write_file_atomically(
        path,
        [PREFIX.pack(*prefix), header_bytes, gap, *data],
        file_bytes,
        waits_for_disk=waits_for_disk,
        write=write,
    )
    return WrittenCheckpoint(file_bytes, prefix.header_digest.hex())


def _arrange_arrays(arrays: Sequence[HostArray]) -> tuple[tuple[StoredArray, ...], list[Buffer]]:
    """Return the places of arrays in a file, and the parts of its data."""
    stored: list[StoredArray] = []
    data: list[Buffer] = []
    offset = 0
    for array in arrays:
        stored.append(StoredArray(dtype=array.dtype.str, shape=array.shape, offset=offset))
        end = round_up(offset + array.nbytes)
        data += [_view_bytes(array), bytes(end - offset - array.nbytes)]
        offset = end
    return tuple(stored), data


def _view_bytes(array: HostArray) -> Buffer:
    """Return the bytes of a contiguous array, in its memory."""
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def read_checkpoint(
    path: Path, plan_digest: str, device: ComputeDevice, classes: Sequence[StateClass] = STATE_CLASSES
) -> Checkpoint:
    """Return the state of a node from a checkpoint file, after verifying every byte of the file.

    Sizes are compared with the size of the file before memory is allocated for them.

    Args:
        path: the file.
        plan_digest: digest of the trial plan to which the checkpoint must belong.
        device: device for the arrays that were on a device with its own memory.
        classes: classes of the records that the state may contain.

    Raises:
        CheckpointError: the file can't be read, is truncated or altered, or belongs to another plan or format version.
    """

    def read(reader: _FileReader) -> Checkpoint:
        header = reader.read_header_of_plan(plan_digest)
        state = EncodedState(header.structure, reader.read_arrays(header))
        device_arrays: list[HostArray] = []

        def to_device(array: HostArray) -> Array:
            device_arrays.append(array)
            return device.to_device(array)

        try:
            decoded = decode_state(state, to_device, classes)
            return Checkpoint(header.identity, decoded, has_device_arrays=bool(device_arrays))
        except InvalidStateTree as error:
            raise CheckpointError(path, f"contains a state that this version of Ensayo can't read: {error}") from error

    return _read_file(path, read)


def copy_checkpoint(
    path: Path, plan_digest: str, new_path: Path, new_identity: CheckpointIdentity
) -> WrittenCheckpoint:
    """Copy the state in a checkpoint file to a new file of another plan, after verifying every byte of the file.

    Args:
        path: the file.
        plan_digest: digest of the trial plan to which the checkpoint must belong.
        new_path: the new file; its folder exists.
        new_identity: whose state it is in the new file.

    Raises:
        CheckpointError: the file can't be read, is truncated or altered, or belongs to another plan or format version;
            or the new file can't be written.
    """

    def read(reader: _FileReader) -> EncodedState:
        header = reader.read_header_of_plan(plan_digest)
        return EncodedState(header.structure, reader.read_arrays(header))

    return _write_encoded_state(new_path, new_identity, _read_file(path, read), waits_for_disk=True)


def describe_checkpoint(path: Path) -> tuple[CheckpointIdentity, WrittenCheckpoint]:
    """Return whose state a file has, and its size and digest, after verifying prefix, header and size, but no data.

    Raises:
        CheckpointError: the file can't be read, is truncated, or its header is altered.
    """

    def read(reader: _FileReader) -> tuple[CheckpointIdentity, WrittenCheckpoint]:
        written = WrittenCheckpoint(reader.file_bytes, reader.prefix.header_digest.hex())
        return reader.read_header().identity, written

    return _read_file(path, read)


def _read_file(path: Path, read: "Callable[[_FileReader], ResultT]") -> ResultT:
    """Return what `read` returns for a file."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            return read(_FileReader(path, file))
    except OSError as error:
        raise CheckpointError(path, f"can't be read: {os_error_cause(error)}") from error


class _FileReader:
    """Reader of one checkpoint file, which verifies all parts of the file."""

    def __init__(self, path: Path, file: FileIO) -> None:
        """Read the prefix of a file."""
        self._path = path
        self._file = file
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self.fail("is not a regular file")
        self.file_bytes = self._unread_bytes = status.st_size
        self.prefix = self._read_prefix()

    def fail(self, reason: str) -> NoReturn:
        """Raise the error of this file."""
        raise CheckpointError(self._path, reason)

    def _read_prefix(self) -> FilePrefix:
        prefix = FilePrefix(*PREFIX.unpack(self._read(PREFIX.size)))
        if prefix.magic != MAGIC:
            self.fail("is not a checkpoint of Ensayo, or its first bytes are altered")
        if prefix.version != FORMAT_VERSION:
            self.fail(f"has the format version {prefix.version}; this version of Ensayo reads {FORMAT_VERSION}")
        if prefix.header_bytes > MAX_HEADER_BYTES:
            self.fail(f"declares a header of {prefix.header_bytes:,} bytes; {MAX_HEADER_BYTES:,} are allowed")
        return prefix

    def read_header(self) -> CheckpointHeader:
        """Return the header, which comes after the prefix."""
        header_bytes = self._read(self.prefix.header_bytes)
        if hashlib.sha256(header_bytes).digest() != self.prefix.header_digest:
            self.fail("its header is altered: the SHA-256 digest differs")
        try:
            header = CheckpointHeader.model_validate_json(header_bytes)
        except ValidationError as error:
            self.fail(f"its header is not valid: {error.errors()[0]['msg']}")
        expected = self.prefix.data_start + header.data_bytes
        if self.file_bytes != expected:
            self.fail(f"has {self.file_bytes:,} bytes in place of {expected:,}")
        if any(self._read(self.prefix.data_start - PREFIX.size - len(header_bytes))):
            self.fail("is altered: the bytes after its header are not zero")
        return header

    def read_header_of_plan(self, plan_digest: str) -> CheckpointHeader:
        """Return the header of a file that must belong to a plan."""
        header = self.read_header()
        if header.identity.plan_digest != plan_digest:
            self.fail(f"belongs to the plan {header.identity.plan_digest}, but the plan of its trial is {plan_digest}")
        return header

    def read_arrays(self, header: CheckpointHeader) -> tuple[HostArray, ...]:
        """Return the arrays, which come after the header."""
        digest, end, arrays = hashlib.sha256(), 0, []
        for stored in header.arrays:
            if stored.offset != end:
                self.fail(f"its header is not valid: an array begins at {stored.offset:,} in place of {end:,}")
            data = self._read(stored.nbytes)
            end = round_up(stored.offset + stored.nbytes)
            gap = self._read(end - stored.offset - stored.nbytes)
            digest.update(data)
            digest.update(gap)
            arrays.append(np.frombuffer(data, stored.dtype).reshape(stored.shape))
        if digest.hexdigest() != header.data_digest:
            self.fail("its data are altered: the SHA-256 digest differs")
        return tuple(arrays)

    def _read(self, size: int) -> bytearray:
        """Return the next bytes; no memory is allocated for more bytes than the file has."""
        if size > self._unread_bytes:
            self.fail(f"is truncated: it has {self.file_bytes:,} bytes")
        self._unread_bytes -= size
        data = bytearray(size)
        unread = memoryview(data)
        while unread:
            count = self._file.readinto(unread)
            if not count:
                self.fail(f"was truncated while it was read: it had {self.file_bytes:,} bytes")
            unread = unread[count:]
        return data
