"""Tests of checkpoint files: complete or unchanged when written, and verified when read."""

import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_trees import describe_bits, states

from services.checkpoints import (
    CheckpointError,
    CheckpointIdentity,
    UnstorableState,
    atomic_files,
    read_checkpoint,
    write_checkpoint,
)
from services.checkpoints.file_format import FORMAT_VERSION, MAGIC, MAX_HEADER_BYTES, PREFIX, FilePrefix
from services.learning.optimisers import OptimiserState
from services.runtime.device import CpuDevice

PLAN = "ab" * 32
DEVICE = CpuDevice("a processor", "a test")
IDENTITY = CheckpointIdentity(plan_digest=PLAN, trial="trial", node="worker-0", step=7, epoch=2, samples=56)
STATE = OptimiserState(3, (np.arange(5.0), np.array([], "float32"), np.arange(100, dtype="int16").reshape(4, 25)))
keep_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, state: Any = STATE) -> bytes:
    """Write a checkpoint, and return its bytes."""
    write_checkpoint(path, IDENTITY, state, DEVICE)
    return path.read_bytes()


def make_file(header: Any, data: bytes = b"") -> bytes:
    """Return a file with a given header, which the prefix describes correctly."""
    header_bytes = header if isinstance(header, bytes) else json.dumps(header).encode()
    prefix = FilePrefix.of_header(header_bytes)
    return (PREFIX.pack(*prefix) + header_bytes).ljust(prefix.data_start, b"\0") + data


def make_header(arrays: list[Any], data: bytes = b"", structure: Any = None) -> dict[str, Any]:
    """Return a header with the right digest of the data."""
    return {
        "identity": IDENTITY.model_dump(),
        "structure": structure,
        "arrays": arrays,
        "data_digest": hashlib.sha256(data).hexdigest(),
    }


@keep_folder
@given(state=states)
def test_every_bit_of_a_state_survives_a_file(state: Any, tmp_path: Path) -> None:
    """A restored run continues with the same bits only if nothing is rounded or changes its type."""
    path = tmp_path / "worker-0.ckpt"
    written = write_checkpoint(path, IDENTITY, state, DEVICE)

    checkpoint = read_checkpoint(path, PLAN, DEVICE)

    assert checkpoint.identity == IDENTITY
    assert describe_bits(checkpoint.state) == describe_bits(state)
    assert written.bytes == path.stat().st_size
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_arrays_that_are_read_can_be_changed_and_are_aligned_in_the_file(tmp_path: Path) -> None:
    """Algorithms may change an array that they own; aligned arrays can be memory-mapped."""
    content = write(tmp_path / "file")

    checkpoint = read_checkpoint(tmp_path / "file", PLAN, DEVICE)

    assert all(array.flags.writeable for array in checkpoint.state.slots)
    assert len(content) % 64 == 0
    assert content.find(STATE.slots[0].tobytes()) % 64 == 0
    assert content.find(STATE.slots[2].tobytes()) % 64 == 0


@keep_folder
@given(position=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_any_altered_byte_is_found(position: float, change: int, tmp_path: Path) -> None:
    """Training that continues from altered parameters is worse than a run that stops."""
    path = tmp_path / "file"
    content = bytearray(write(path))
    content[int(position * len(content))] ^= change
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=str(path)):
        read_checkpoint(path, PLAN, DEVICE)


@keep_folder
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_file_is_found(share: float, tmp_path: Path) -> None:
    """A host that crashes may leave the beginning of a file."""
    path = tmp_path / "file"
    content = write(path)
    path.write_bytes(content[: int(share * len(content))])

    with pytest.raises(CheckpointError, match=r"is truncated|bytes in place of"):
        read_checkpoint(path, PLAN, DEVICE)


@keep_folder
@given(content=st.binary(max_size=300))
def test_random_bytes_are_no_checkpoint(content: bytes, tmp_path: Path) -> None:
    """Whatever the file has, its reader raises the one error that callers handle."""
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(CheckpointError):
        read_checkpoint(path, PLAN, DEVICE)


ARRAY = {"dtype": "<f8", "shape": [8], "offset": 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (make_file(make_header([ARRAY | {"shape": [1 << 40]}])), "bytes in place of 8,796,093,0"),
        (make_file(make_header([ARRAY | {"shape": [1 << 62, 1 << 62]}])), "impossible shape"),
        (make_file(make_header([ARRAY | {"shape": [0, 1 << 63]}])), "impossible shape"),
        (make_file(make_header([ARRAY | {"shape": [-1]}])), "impossible shape"),
        (make_file(make_header([ARRAY | {"shape": [1] * 33}])), "at most 32 items"),
        (make_file(make_header([ARRAY | {"dtype": "|O"}])), "unknown data type"),
        (make_file(make_header([ARRAY, ARRAY])), "bytes in place of"),
        (make_file(make_header([ARRAY, ARRAY], bytes(64)), bytes(64)), "an array begins at 0 in place of 64"),
        (make_file(make_header([ARRAY | {"offset": 64}], bytes(128)), bytes(128)), "begins at 64 in place of 0"),
        (make_file(make_header([ARRAY], bytes(64)), bytes(64)), "1 of 1 arrays are not part of the structure"),
        (make_file(make_header([], structure={"record": ["Popen", {}]})), "can't read: unknown class"),
        (make_file(make_header([]) | {"more": 1}), "its header is not valid"),
        (make_file({}), "its header is not valid"),
        (make_file(b"[" * 100_000), "its header is not valid"),
        (make_file(b'{"structure":' + b"[" * 100_000), "its header is not valid"),
        (make_file(b"\xff"), "its header is not valid"),
        (make_file(make_header([])) + bytes(64), "bytes in place of"),
        (PREFIX.pack(MAGIC, FORMAT_VERSION, MAX_HEADER_BYTES + 1, bytes(32)), "declares a header of 16,777,217 bytes"),
        (PREFIX.pack(MAGIC, FORMAT_VERSION, MAX_HEADER_BYTES, bytes(32)), "is truncated: it has 48 bytes"),
        (
            PREFIX.pack(MAGIC, FORMAT_VERSION + 1, 0, bytes(32)),
            "has the format version 2; this version of Ensayo reads",
        ),
        (PREFIX.pack(b"PK\3\4....", FORMAT_VERSION, 0, bytes(32)), "is not a checkpoint of Ensayo"),
        (b"", "is truncated: it has 0 bytes"),
    ],
)
def test_file_that_ensayo_has_not_written_is_an_error_with_its_reason(
    content: bytes, message: str, tmp_path: Path
) -> None:
    """Digests protect against accidents only; limits hold for every file."""
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(path, PLAN, DEVICE)

    assert caught.value.path == path


def test_checkpoint_of_another_plan_is_an_error(tmp_path: Path) -> None:
    """Its ranks, shards and parameters have other meanings."""
    write(tmp_path / "file")

    with pytest.raises(CheckpointError, match=f"belongs to the plan {PLAN}, but the plan of its trial is {'cd' * 32}"):
        read_checkpoint(tmp_path / "file", "cd" * 32, DEVICE)


def test_what_is_not_a_regular_file_is_an_error(tmp_path: Path) -> None:
    """Reading a named pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe")

    for name, message in {"pipe": "is not a regular file", "": "Is a directory", "none": "No such file"}.items():
        with pytest.raises(CheckpointError, match=message):
            read_checkpoint(tmp_path / name, PLAN, DEVICE)


def test_full_disk_leaves_the_earlier_checkpoint_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run can still go back to the earlier checkpoint."""
    path, before = tmp_path / "worker-0.ckpt", write(tmp_path / "worker-0.ckpt")
    needed = write_checkpoint(tmp_path / "large", IDENTITY, np.zeros(10_000), DEVICE).bytes
    (tmp_path / "large").unlink()
    write_some, room = os.write, 300

    def write_until_full(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write_some(descriptor, data[:room])
        room -= count
        return count

    monkeypatch.setattr(atomic_files.os, "write", write_until_full)
    monkeypatch.setattr(atomic_files.os, "statvfs", lambda path: os.statvfs_result([4096, 1, 0, 300, 300, *[0] * 5]))

    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(path, IDENTITY, np.zeros(10_000), DEVICE)

    missing = f"the file needs {needed:,} bytes, which is {needed - 300:,} more than are free"
    reason = f"No space left on device; {missing}; earlier checkpoints are unchanged"
    assert str(caught.value) == f"checkpoint {path}: can't be written: {reason}"
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_limit_of_the_operating_system_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    """Here the kernel itself cuts a file off, as a full disk does."""
    path, before = tmp_path / "worker-0.ckpt", write(tmp_path / "worker-0.ckpt")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="can't be written: File too large"):
            write_checkpoint(path, IDENTITY, np.zeros(10_000), DEVICE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_process_that_is_killed_while_it_writes_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    """A worker may end at any time; a later write replaces its temporary file."""
    path, before = tmp_path / "worker-0.ckpt", write(tmp_path / "worker-0.ckpt")
    program = f"""
import os
from pathlib import Path
from services.checkpoints.atomic_files import write_file_atomically
def parts():
    yield b"new"
    os.kill(os.getpid(), 9)
write_file_atomically(Path({str(path)!r}), parts(), 6)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)

    assert ended.returncode == -9
    assert path.read_bytes() == before
    assert read_checkpoint(path, PLAN, DEVICE).identity == IDENTITY
    write(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_file_that_cannot_be_created_is_an_error_with_its_reason(tmp_path: Path) -> None:
    """The message must show which folder to create."""
    with pytest.raises(CheckpointError, match=r"no/file: can't be written: No such file or directory$"):
        write_checkpoint(tmp_path / "no" / "file", IDENTITY, STATE, DEVICE)


def test_state_that_cannot_be_stored_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    """Nothing is written before the whole state is encoded."""
    before = write(tmp_path / "file")

    with pytest.raises(UnstorableState):
        write_checkpoint(tmp_path / "file", IDENTITY, {1, 2}, DEVICE)

    assert (tmp_path / "file").read_bytes() == before


CORRUPTION_PROGRAM = """
import random, resource, sys
from pathlib import Path
from services.checkpoints import CheckpointError, read_checkpoint
from services.runtime.device import CpuDevice

path, plan = Path(sys.argv[1]), sys.argv[2]
device, content, rng = CpuDevice("a processor", "a test"), path.read_bytes(), random.Random(1)
used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (16 << 20), resource.RLIM_INFINITY))
read_checkpoint(path, plan, device)
for position in [*range(512), *(rng.randrange(len(content)) for _ in range(200))]:
    for change in (1, 0x80, rng.randrange(1, 256)):
        altered = bytearray(content)
        altered[position] ^= change
        path.write_bytes(altered)
        try:
            read_checkpoint(path, plan, device)
        except CheckpointError:
            continue
        sys.exit(f"byte {position}, changed by {change}, was not found")
"""


def test_altered_files_need_no_more_memory_than_their_size_and_end_soon(tmp_path: Path) -> None:
    """An altered length must not make a node allocate all memory of the host, or wait."""
    write(tmp_path / "file")

    ended = subprocess.run(
        [sys.executable, "-c", CORRUPTION_PROGRAM, tmp_path / "file", PLAN],
        check=False,
        timeout=60,
        capture_output=True,
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
