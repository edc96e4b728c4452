"""Row `trials`: one run with many trials, and the resources of its process after each of them."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.endurance.growth import list_growth_lines
from benchmarks.endurance.leftovers import RunPlace, list_leftover_lines, open_place, read_resident_memory_mb
from benchmarks.endurance.row import ResultLine, RowContext
from benchmarks.endurance.runs import make_scenario, start_run, wait_for_end
from benchmarks.endurance.trial_results import read_statuses
from services.schema.component import FrozenRecord

TRIAL_COUNT = 200
POLL_INTERVAL_S = 0.02


class ProcessResources(FrozenRecord):
    """Resources of the process `ensayo run`."""

    descriptors: int
    threads: int
    memory_mb: float
    temporary_files: int


def measure_trials(context: RowContext) -> Iterator[ResultLine]:
    """Run all trials with the engine local, and yield their results and the growth of the process."""
    with open_place(context.folder, has_containers=False) as place:
        process = start_run(place, "local", make_scenario("trials", workers=2, repeats=TRIAL_COUNT))
        samples = list(_sample_after_each_trial(place, process))
        wait_for_end(process)
        successes = list(read_statuses(place.runs_folder).values()).count("success")
        yield ResultLine(
            what="trials that succeeded", result=f"{successes}", limit=f"{TRIAL_COUNT}", is_met=successes == TRIAL_COUNT
        )
        yield from list_growth_lines(samples)
        yield from list_leftover_lines(place)


def _sample_after_each_trial(place: RunPlace, process: subprocess.Popen[bytes]) -> Iterator[ProcessResources]:
    """Yield the resources of the process as soon as another trial begins, when the one before is removed."""
    trial_count = 0
    while process.poll() is None:
        trials = len(list(place.runs_folder.glob("*/*Z-*/trials/*/logs")))
        if trials > trial_count:
            trial_count = trials
            yield _read_resources(process.pid, place.temporary_folder)
        time.sleep(POLL_INTERVAL_S)


def _read_resources(pid: int, temporary_folder: Path) -> ProcessResources:
    folder = Path("/proc") / str(pid)
    return ProcessResources(
        descriptors=len(list((folder / "fd").iterdir())),
        threads=len(list((folder / "task").iterdir())),
        memory_mb=read_resident_memory_mb(pid),
        temporary_files=len(list(temporary_folder.iterdir())),
    )
