"""Rows `engine` and `disk`: the Docker engine is killed, or the disk becomes full, in the middle of a run.

The run must end with a message that names the cause. Finished trials must be kept, and the run must be continued after
the cause is gone.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.endurance.leftovers import RunPlace, list_leftover_lines, open_place
from benchmarks.endurance.row import ResultLine, RowContext
from benchmarks.endurance.runs import find_run_folders, make_scenario, start_ensayo, start_run, wait_for_end
from benchmarks.endurance.trial_results import count_texts, list_failure_reasons, read_statuses
from ensayo.exit_codes import ExitCode

TRIAL_COUNT = 3
DISK_BYTES = 8 << 20
LONGEST_WAIT_S, POLL_INTERVAL_S = 900.0, 0.05
FULL_DISK_TEXT, LOST_ENGINE_TEXT = "No space left on device", "the Docker daemon does not answer"
FINISHED = (ExitCode.OK, ExitCode.INVALID)  # a busy host can make a verdict invalid


@dataclass(frozen=True)
class Outage:
    """What a run loses while a trial trains after another one has ended, and gets back."""

    engine_name: str
    cause: str  # that the message of the run names
    begin: Callable[[], object]
    end: Callable[[], object]


def measure_lost_engine(context: RowContext) -> Iterator[ResultLine]:
    """Kill the Docker engine while a later trial trains, start it again, and continue the run."""
    with open_place(context.folder, has_containers=True) as place:
        outage = Outage("docker", LOST_ENGINE_TEXT, place.require_engine().kill, place.require_engine().start)
        yield from _measure_outage(place, outage)


def measure_full_disk(context: RowContext) -> Iterator[ResultLine]:
    """Fill the disk of the run folders while a later trial trains, free it, and continue the run."""
    with open_place(context.folder, has_containers=False) as place, mount_small_disk(place.runs_folder):
        filler = place.runs_folder / "filler"
        outage = Outage("local", FULL_DISK_TEXT, lambda: fill_disk(filler), filler.unlink)
        yield from _measure_outage(place, outage)


def _make_outage_scenario() -> Mapping[str, Any]:
    """Return a scenario whose links have no rate, so that no probe of a link fails on a busy host."""
    cluster = {"workers": 2, "worker": {"throughput": "1000/s"}}
    scenario = make_scenario("outage", workers=2, repeats=TRIAL_COUNT, cluster=cluster)
    scenario["workload"]["epochs"] = 5
    return scenario


def _measure_outage(place: RunPlace, outage: Outage) -> Iterator[ResultLine]:
    process = start_run(place, outage.engine_name, _make_outage_scenario())
    _wait_until_a_later_trial_trains(process, place)
    outage.begin()
    exit_code = wait_for_end(process)
    message = place.output.read_text().strip().splitlines()[-1]
    kept = read_statuses(place.runs_folder)
    yield _require("exit code of the run", f"{exit_code:d}", f"{ExitCode.FAILED:d}", exit_code == ExitCode.FAILED)
    (folder,) = find_run_folders(place)
    is_named = outage.cause in message and f"ensayo run --resume {folder}" in message
    yield _require(
        "last line of the output", f"`{message}`".replace(f"{place.folder}/", ""), f"names {outage.cause}", is_named
    )
    finished = [trial for trial, status in kept.items() if status == "success"]
    yield _require("finished trials before the outage", f"{len(finished)}", "at least 1", bool(finished))
    outage.end()
    times = _read_status_times(folder, finished)
    resumed = start_ensayo(place, "run", "--resume", str(folder))
    exit_code = wait_for_end(resumed)
    yield _require("exit code of the resumed run", f"{exit_code:d}", "0 or 3", exit_code in FINISHED)
    statuses = list(read_statuses(place.runs_folder).values())
    is_complete = statuses == ["success"] * TRIAL_COUNT
    yield _require("trials that succeeded in the end", f"{statuses.count('success')}", f"{TRIAL_COUNT}", is_complete)
    failures = count_texts(list_failure_reasons(folder))
    yield ResultLine(what="reasons of failed trials", result=failures)
    is_kept = times == _read_status_times(folder, finished)
    yield _require("outcomes of finished trials", "kept" if is_kept else "changed", "kept", is_kept)
    yield from list_leftover_lines(place)


def _require(what: str, result: str, limit: str, is_met: bool) -> ResultLine:
    return ResultLine(what=what, result=result, limit=limit, is_met=is_met)


def _read_status_times(run_folder: Path, trials: list[str]) -> list[int]:
    return [(run_folder / "trials" / trial / "status.json").stat().st_mtime_ns for trial in trials]


def _wait_until_a_later_trial_trains(process: subprocess.Popen[bytes], place: RunPlace) -> None:
    """Wait until a trial trains and another one has succeeded.

    Raises:
        TimeoutError: the run has ended before, or takes too long.
    """
    deadline = time.monotonic() + LONGEST_WAIT_S
    while not ("success" in read_statuses(place.runs_folder).values() and _is_a_trial_training(place.runs_folder)):
        if process.poll() is not None or time.monotonic() > deadline:
            output = " ".join(place.output.read_text().split())
            raise TimeoutError(f"no trial trained after another one had succeeded; the output of the run: {output}")
        time.sleep(POLL_INTERVAL_S)


def _is_a_trial_training(runs_folder: Path) -> bool:
    logs = runs_folder.glob("*/*Z-*/trials/*/logs/coordinator.log")
    running = [path for path in logs if not (path.parents[1] / "status.json").exists()]
    return any(b'"eval_stop"' in path.read_bytes() and b'"run_stop"' not in path.read_bytes() for path in running)


@contextmanager
def mount_small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of a few megabytes at a folder during the `with` block; this needs root."""
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs"]
    subprocess.run(["mount", *options, folder], check=True)  # noqa: S603, S607
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S603, S607


def fill_disk(filler: Path) -> None:
    """Write a file until the file system has no space left."""
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 12)):
                pass
        except OSError:
            return
