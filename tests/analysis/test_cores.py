"""Work on several cores gives what one would."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.reading import parallel as cores
from services.schema.errors import HostError


def test_items_keep_their_order_whoever_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_cores", lambda: 2)

    assert cores.spread(abs, range(-40, 0)) == list(range(40, 0, -1))


def test_who_asks_for_others_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others begin as new processes, which takes them longer than a few items take."""
    monkeypatch.setattr(cores, "_cores", lambda: 2)

    assert os.getpid() in cores.spread(_process, range(40))


def test_one_process_alone_starts_no_other() -> None:
    before = threading.active_count()

    assert set(cores.spread(_process, range(3), alone=True)) == {os.getpid()}
    assert threading.active_count() == before


def test_a_team_keeps_its_processes_which_begin_before_the_last_item_has_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process takes seconds to begin; figures come after trials, and are saved while the next one is drawn."""
    monkeypatch.setattr(cores, "_cores", lambda: 2)

    with cores.Team() as team:
        team.load("colorsys")
        (first,) = team.spread(_taken, _until_taken(tmp_path / "first"))
        (second,) = team.spread(_taken, _until_taken(tmp_path / "second"))

    assert first == second
    assert first[0] != os.getpid()
    assert first[1]


def _until_taken(path: Path) -> Iterator[Path]:
    yield path
    late_s = time.monotonic() + 60
    while not path.exists() and time.monotonic() < late_s:
        time.sleep(0.01)


def _taken(path: Path) -> tuple[int, bool]:
    """Which process takes it, and whether that one has loaded what it was told to."""
    path.touch()
    return os.getpid(), "colorsys" in sys.modules


def test_a_task_that_fails_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_cores", lambda: 2)

    with pytest.raises(ZeroDivisionError):
        cores.spread(_inverse, range(3))


def test_where_a_process_is_killed_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As hosts do that run out of memory."""
    monkeypatch.setattr(cores, "_cores", lambda: 2)

    with pytest.raises(HostError, match="lack of memory"), cores.Team() as team:
        team.spread(_killed, _until_taken(tmp_path / "taken"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Says once more in `ran` that it runs, and prints the process that it asked for help; it has no guard."""
    (tmp_path / "helping.py").write_text(HELPING)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(ran=str(tmp_path / "ran"), taken=str(tmp_path / "taken")))
    return path


HELPING = """
import os
import pathlib

def take(path):
    pathlib.Path(path).touch()
    return os.getpid()
"""
PROGRAM = """
import pathlib, sys, time
import helping
from analysis.reading import parallel as cores

with open({ran!r}, "a") as ran:
    ran.write("once")

def items():
    yield {taken!r}
    late_s = time.monotonic() + 30
    while not pathlib.Path({taken!r}).exists() and time.monotonic() < late_s:
        time.sleep(0.01)

cores._cores = lambda: 2
with cores.Team() as team:
    print(*team.spread(helping.take, items()), flush=True)
    time.sleep(float(sys.argv[1]))
"""


def test_a_program_without_a_guard_runs_once(program: Path) -> None:
    """Others that imported it would rehearse, too, before they help with the report; and would then fail."""
    told = subprocess.run([sys.executable, program, "0"], capture_output=True, text=True, check=True, timeout=60)

    assert int(told.stdout)
    assert (program.parent / "ran").read_text() == "once"


def test_others_end_with_who_asked_them_however_it_ends(program: Path) -> None:
    """A report that is killed, for its memory or its time, must not leave processes behind that wait for work."""
    asks = [sys.executable, str(program), "60"]
    with subprocess.Popen(asks, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asking:
        assert asking.stdout
        other = int(asking.stdout.readline())
        asking.kill()

    assert other != asking.pid
    assert _within(10, lambda: not _runs(other))


def _runs(process: int) -> bool:
    """Whether there is one that has not ended; who should have waited for it may be gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    late_s = time.monotonic() + seconds
    while not holds() and time.monotonic() < late_s:
        time.sleep(0.01)
    return holds()


def _killed(path: Path) -> None:
    path.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def _process(_: int) -> int:
    return os.getpid()


def _inverse(number: int) -> float:
    return 1 / number
