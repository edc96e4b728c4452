"""Fuzz target: a function that reads bytes, the errors that it may raise, and limits on its time and memory."""

import re
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from types import FrameType

FILE_HEADER = re.compile(rb"(?:\A|\n)=== ([^\n]*)\n")  # before each file of an input with several files
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - 25 times as fast as a disk; the folder in it has a random name
STATM = Path("/proc/self/statm")  # its first number is the size of the address space, in pages


@dataclass(frozen=True)
class FuzzTarget:
    """Reader of bytes, with what it may do for any input.

    Every exception that is not documented is a crash. More CPU time than `max_cpu_s` is a hang, and more additional
    memory than `max_memory_bytes` is a blow-up.
    """

    name: str
    read: Callable[[bytes], None]
    documented_errors: tuple[type[Exception], ...] = ()
    max_bytes: int = 4096  # of an input
    max_cpu_s: float = 5.0
    max_memory_bytes: int = 200 << 20
    is_located: bool = False  # whether messages of errors begin with file or key
    seed_outcome: str = ""  # pattern of the message with which seeds are rejected; empty: seeds are accepted

    def check(self, content: bytes) -> None:
        """Read one input.

        Raises:
            AssertionError: the input takes too much time.
            Exception: any error that is not documented; MemoryError if the input takes too much memory.
        """
        try:
            with self._limit_resources():
                self.read(content)
        except self.documented_errors as error:
            self._check_message(str(error))

    def check_seed(self, content: bytes) -> None:
        """Read a seed, which must reach the end of the reader, or be rejected as `seed_outcome` says."""
        try:
            with self._limit_resources():
                self.read(content)
        except self.documented_errors as error:
            if not self.seed_outcome or not re.search(self.seed_outcome, str(error)):
                raise
        else:
            assert not self.seed_outcome, "the seed was accepted"

    def _check_message(self, message: str) -> None:
        assert message.strip(), "an error has no message"
        if self.is_located:
            assert all(re.match(r"\S+.*: ", line) for line in message.splitlines()[:1]), f"no location: {message}"

    @contextmanager
    def _limit_resources(self) -> Iterator[None]:
        with warnings.catch_warnings(), _limited_memory(self.max_memory_bytes), _limited_cpu_time(self.max_cpu_s):
            warnings.simplefilter("ignore")
            yield


class _CpuTimeExceeded(BaseException):
    """Interruption of a reader; no handler of `Exception` catches it."""


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise _CpuTimeExceeded


@contextmanager
def _limited_cpu_time(max_cpu_s: float) -> Iterator[None]:
    """Interrupt the block after so many seconds of CPU time, which do not depend on the load of the host."""
    previous = signal.signal(signal.SIGPROF, _interrupt)
    signal.setitimer(signal.ITIMER_PROF, max_cpu_s)
    try:
        yield
    except _CpuTimeExceeded as error:
        raise AssertionError(f"the input takes more than {max_cpu_s:g} s") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@contextmanager
def _limited_memory(additional_bytes: int) -> Iterator[None]:
    """Let allocations fail that enlarge the address space by more than so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(STATM.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + additional_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@cache
def _scratch_folder() -> tempfile.TemporaryDirectory[str]:
    folder = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    return tempfile.TemporaryDirectory(prefix="fuzz-", dir=folder)


def empty_folder(name: str) -> Path:
    """Return a new empty folder of this process; an earlier folder of this name is removed."""
    folder = Path(_scratch_folder().name) / name
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def write_files(folder: Path, content: bytes, file_names: Sequence[str]) -> None:
    """Write the files of an input to a folder.

    Before each file, the input has a line `=== NAME`; the line break before it is no part of a file. Files with other
    names than `file_names` are left out.
    """
    _, *parts = FILE_HEADER.split(content)
    for name, file_content in zip(parts[::2], parts[1::2], strict=True):
        if (file_name := name.decode(errors="replace")) in file_names:
            path = folder / file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file_content)
