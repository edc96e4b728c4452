"""Benchmark of checkpoint files (`make bench-checkpoints`): seconds to write and to read 100 MB.

Writing encodes the state, computes digests and writes a file, with or without waiting for the storage device. Reading
verifies all bytes and decodes the state, from the page cache or from the storage device.
"""

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.fidelity.provenance import current_origin
from benchmarks.markdown import markdown_table
from compose.engines.local import NODE_ENVIRONMENT, LocalEngine
from services.checkpoints import CheckpointIdentity, read_checkpoint, write_checkpoint
from services.learning.optimisers import OptimiserState
from services.runtime.device import CpuDevice
from services.schema.arrays import HostArray
from services.strategies.all_reduce.worker import AllReduceState

RESULTS_PAGE = Path(__file__).parents[1] / "docs" / "results" / "checkpoints.md"
DEFAULT_ROUNDS, MIN_ROUNDS = 9, 5
STATE_BYTES = 100_000_000
WRITE_DURABLY, READ_FROM_DEVICE = "write, wait for the storage device", "read from the storage device"
DEVICE = CpuDevice("this processor", "the benchmark has chosen it")
IDENTITY = CheckpointIdentity(plan_digest="0" * 64, trial="benchmark", node="worker-0", step=1)
REMARKS = """Wall time of one process for the state of an all-reduce worker with momentum: 100 MB in fp32, one half
parameters and the other half momentum. All rows take turns in every round. `SHA-256` and `plain write` are
parts of a write without waiting: one digest of the state, and one write of the same bytes to a new file. A
read computes the same digest. Before a read from the storage device, the kernel is asked to drop the pages
of the file; the host of a virtual machine may have them in its own memory all the same.

The nodes of one host share its processors and its storage device. A checkpoint of n workers on one host
therefore takes longer than that of one, up to n times as long.
"""


def measure_checkpoints(folder: Path, state_bytes: int, rounds: int) -> Mapping[str, list[float]]:
    """Return the seconds of each row in every round; files are written to `folder`."""
    params, momentum = np.random.default_rng(1).standard_normal((2, state_bytes // 8), "float32")
    state = params, AllReduceState(OptimiserState(1, (momentum,)), None)
    path = folder / "worker-0.ckpt"
    rows: dict[str, Callable[[], object]] = {
        WRITE_DURABLY: lambda: write_checkpoint(path, IDENTITY, state, DEVICE),
        READ_FROM_DEVICE: lambda: read_checkpoint(path, IDENTITY.plan_digest, DEVICE),
        "write, without waiting": lambda: write_checkpoint(path, IDENTITY, state, DEVICE, waits_for_disk=False),
        "read from the page cache": lambda: read_checkpoint(path, IDENTITY.plan_digest, DEVICE),
        "SHA-256": lambda: [hashlib.sha256(vector) for vector in (params, momentum)],
        "plain write": lambda: _write_plainly(folder / "plain", [params, momentum]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(rounds + 1):  # the first round, in which memory is new, does not count
        for name, run in rows.items():
            if name == READ_FROM_DEVICE:
                _drop_from_page_cache(path)
            start_s = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - start_s)
    return seconds


def _drop_from_page_cache(path: Path) -> None:
    """Ask the kernel to drop the pages of a file, whose data are on the storage device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _write_plainly(path: Path, vectors: Iterable[HostArray]) -> None:
    """Write vectors to a new file, without waiting for the storage device."""
    with path.open("wb", buffering=0) as file:
        for vector in vectors:
            file.write(vector.data)
    path.unlink()


def list_result_lines(seconds: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield the lines of the table: median and range of each row."""
    header = ("row", "seconds per 100 MB, median", "range", "MB/s")
    yield from markdown_table(header, (_format_row(name, samples) for name, samples in seconds.items()))


def _format_row(name: str, samples: Sequence[float]) -> tuple[str, ...]:
    median = statistics.median(samples)
    return name, f"{median:.3f}", f"{min(samples):.3f} - {max(samples):.3f}", f"{STATE_BYTES / 1e6 / median:,.0f}"


def main() -> int:
    """Measure, print the table, and write the page if --write is given.

    The process first restarts itself with the allocator settings of nodes, since these change the speed of copies.

    Returns:
        0, or 2 if no page can be written.
    """
    if not os.environ.items() >= NODE_ENVIRONMENT.items():
        command = [sys.executable, "-m", "benchmarks.checkpoints", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | NODE_ENVIRONMENT)  # noqa: S606 - this program
    arguments = _parse_arguments()
    origin = current_origin(LocalEngine())
    if arguments.write and not origin.is_one_commit:
        sys.stderr.write("--write: the page needs a checkout without uncommitted changes\n")
        return 2
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        seconds = measure_checkpoints(Path(folder), STATE_BYTES, max(arguments.rounds, MIN_ROUNDS))
    text = "\n".join([*list_result_lines(seconds), "", REMARKS])
    sys.stdout.write(text)
    if arguments.write:
        host = origin.host
        machine = f"{arguments.write} ({host.cpu}, {host.cores} cores, Linux {host.kernel})"
        sentences = f"Machine: {machine}. Commit {origin.commit}, {origin.date}. NumPy {np.__version__}."
        RESULTS_PAGE.write_text(f"# What `make bench-checkpoints` printed\n\n{sentences}\n\n{text}", encoding="utf-8")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(), help="folder on the file system to measure; default: .")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per row; at least {MIN_ROUNDS}")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
