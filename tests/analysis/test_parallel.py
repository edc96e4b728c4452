"""A process pool returns what one process would, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from analysis.reading import parallel
from services.schema.errors import HostError

Item = TypeVar("Item")
Result = TypeVar("Result")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and one helper, on every host."""
    monkeypatch.setattr(parallel, "_usable_core_count", lambda: 2)


def map_in_pool(task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    with parallel.ProcessPool() as pool:
        return pool.map(task, items)


def test_results_keep_the_order_of_the_items(two_cores: None) -> None:
    """The order does not depend on the process that computes an item."""
    assert map_in_pool(abs, range(-40, 0)) == list(range(40, 0, -1))


def test_the_parent_process_computes_items_too(two_cores: None) -> None:
    """A helper takes longer to start than a few items take."""
    assert os.getpid() in map_in_pool(_process_id, range(40))


def test_a_single_process_starts_no_helper() -> None:
    before = threading.active_count()

    with parallel.ProcessPool(single_process=True) as pool:
        assert set(pool.map(_process_id, range(3))) == {os.getpid()}

    assert threading.active_count() == before


def test_little_work_and_one_core_start_no_helper(monkeypatch: pytest.MonkeyPatch, two_cores: None) -> None:
    with parallel.create_process_pool(parallel.PARALLEL_LOG_BYTES - 1) as pool:
        assert set(pool.map(_process_id, range(3))) == {os.getpid()}

    monkeypatch.setattr(parallel, "_usable_core_count", lambda: 1)
    with parallel.create_process_pool(parallel.PARALLEL_LOG_BYTES) as pool:
        assert set(pool.map(_process_id, range(3))) == {os.getpid()}


def test_a_pool_keeps_its_helper_which_starts_before_the_last_item_is_known(two_cores: None, tmp_path: Path) -> None:
    """A process takes seconds to start; figures come after trials, and are saved while the next one is drawn."""
    with parallel.ProcessPool() as pool:
        pool.preload_module("colorsys")
        (first,) = pool.map(_touch, _until_touched(tmp_path / "first"))
        (second,) = pool.map(_touch, _until_touched(tmp_path / "second"))

    assert first == second
    assert first[0] != os.getpid()
    assert first[1]


def _until_touched(path: Path) -> Iterator[Path]:
    """The path; ends when a helper has taken it, so that this process cannot."""
    yield path
    deadline_s = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _touch(path: Path) -> tuple[int, bool]:
    """The id of the process that takes the path, and whether that process has the preloaded module."""
    path.touch()
    return os.getpid(), "colorsys" in sys.modules


def test_an_exception_of_a_task_is_raised_in_the_parent(two_cores: None) -> None:
    with pytest.raises(ZeroDivisionError):
        map_in_pool(_inverse, range(3))


def test_an_exception_in_a_helper_is_raised_in_the_parent(two_cores: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="taken"):
        map_in_pool(_fail, _until_touched(tmp_path / "taken"))


def test_after_an_exception_no_further_item_is_started(two_cores: None, tmp_path: Path) -> None:
    """Except the items that the helper already has."""
    items = [tmp_path / str(number) for number in range(40)]

    with pytest.raises(ValueError, match="39"):
        map_in_pool(_fail, items)

    assert sum(item.exists() for item in items) < 10


def test_a_killed_helper_raises_an_error_with_advice(two_cores: None, tmp_path: Path) -> None:
    """As on hosts that run out of memory."""
    with pytest.raises(HostError, match=r"a helper process of the analysis was killed, .*lack of memory"):
        map_in_pool(_kill_itself, _until_touched(tmp_path / "taken"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program without a guard: writes to `ran` that it runs, and prints the id of the helper that took its item."""
    (tmp_path / "helping.py").write_text(HELPER_MODULE)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(ran=str(tmp_path / "ran"), taken=str(tmp_path / "taken")))
    return path


HELPER_MODULE = """
import os
import pathlib

def take(path):
    pathlib.Path(path).touch()
    return os.getpid()
"""
PROGRAM = """
import pathlib, sys, time
import helping
from analysis.reading import parallel

with open({ran!r}, "a") as ran:
    ran.write("once")

def items():
    yield {taken!r}
    deadline_s = time.monotonic() + 30
    while not pathlib.Path({taken!r}).exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)

parallel._usable_core_count = lambda: 2
with parallel.ProcessPool() as pool:
    print(*pool.map(helping.take, items()), flush=True)
    time.sleep(float(sys.argv[1]))
"""


def test_a_program_without_a_guard_runs_once(program: Path) -> None:
    """A helper that imported the program would run its trials again before it helps with the report, and then fail."""
    done = subprocess.run([sys.executable, program, "0"], capture_output=True, text=True, check=True, timeout=60)

    assert int(done.stdout)
    assert done.stderr == ""
    assert (program.parent / "ran").read_text() == "once"


def test_helpers_end_with_their_parent_however_it_ends(program: Path) -> None:
    """A report that is killed, for its memory or its time, must not leave processes behind that wait for work."""
    command = [sys.executable, str(program), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout
        helper = int(parent.stdout.readline())
        parent.kill()

    assert helper != parent.pid
    assert _holds_within(10, lambda: not _is_running(helper))


def _is_running(process_id: int) -> bool:
    """Whether the process exists and has not ended; a process whose parent is gone may stay as a zombie."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _holds_within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return holds()


def _kill_itself(path: Path) -> None:
    path.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(path: Path) -> None:
    path.touch()
    raise ValueError(path.name)


def _process_id(_: int) -> int:
    return os.getpid()


def _inverse(number: int) -> float:
    return 1 / number
