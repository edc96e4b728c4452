"""Endurance benchmark: what is left of a run is found, and growth and leftovers miss their limits."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endurance.growth import list_growth_lines
from benchmarks.endurance.leftovers import Leftovers, RunPlace, open_place
from benchmarks.endurance.results_page import format_row
from benchmarks.endurance.row import ResultLine, RowContext, RowOutcome
from benchmarks.endurance.rows.many_containers import make_containers_scenario, make_parallel_scenario
from benchmarks.endurance.rows.outages import measure_full_disk
from benchmarks.endurance.rows.starts import INTERRUPTIONS, Interruption, StartRecord, StartSeries, list_start_lines
from benchmarks.endurance.runs import find_nodes, make_scenario, start_run, wait_for_end
from compose.runs.interrupted_run import lock_run_folder
from services.scenario.scenario import Scenario
from services.schema.component import FrozenRecord


class SampleOfCounts(FrozenRecord):
    """Two counts, of which one is named like that of open files."""

    mounts: int
    descriptors: int


def make_record(number: int, interruption: Interruption, **values: object) -> StartRecord:
    """Return the record of a start after which all was as it must be, apart from `values`."""
    record = StartRecord(
        number=number,
        interruption=interruption,
        moment_s=1.0,
        came_too_late=False,
        exit_code=0,
        end_s=0.1,
        after_end=Leftovers(),
        after_clean=Leftovers(),
        problem="",
        run_s=8.0,
    )
    return record.model_copy(update=values)


def test_a_start_with_the_engine_local_is_interrupted_and_leaves_nothing(tmp_path: Path) -> None:
    """The benchmark must find the nodes that it kills, and notice that a killed runner leaves its keys."""
    with open_place(tmp_path, has_containers=False) as place:
        series = StartSeries(place, "local")
        records = [series.run_start(number, uninterrupted_s=4.0) for number in range(3, 5)]

    assert [record.interruption for record in records] == ["kill_runner", "kill_node"]
    assert next(record.exit_code for record in records if not record.came_too_late) == -signal.SIGKILL
    assert [record.problem for record in records] == ["", ""]


def test_leftovers_of_a_run_in_progress_are_found(tmp_path: Path) -> None:
    """A benchmark that finds nothing would always pass."""
    scenario = make_scenario("endless", workers=2)
    scenario["workload"]["epochs"] = 2000
    with open_place(tmp_path, has_containers=False) as place:
        process = start_run(place, "local", scenario)
        while len(find_nodes(place)) < 3:
            assert process.poll() is None, place.output.read_text()
        leftovers = place.find_leftovers()
        process.terminate()
        wait_for_end(process)

        assert len(leftovers.processes) >= 4
        assert len(leftovers.temporary_files) == len(leftovers.locked_runs) == 1
        assert place.find_leftovers().is_nothing


def test_an_interrupted_benchmark_leaves_no_run(tmp_path: Path) -> None:
    """Its runs have process groups of their own, so that Ctrl-C does not reach them."""
    scenario = make_scenario("endless", workers=2)
    scenario["workload"]["epochs"] = 2000

    with suppress(KeyboardInterrupt), open_place(tmp_path, has_containers=False) as place:
        process = start_run(place, "local", scenario)
        while len(find_nodes(place)) < 3:
            assert process.poll() is None, place.output.read_text()
        raise KeyboardInterrupt

    assert wait_for_end(process) == -signal.SIGKILL
    leftovers, _ = place.wait_until_nothing_runs(5.0)
    assert leftovers.runs_nothing


def test_a_locked_run_folder_is_left(tmp_path: Path) -> None:
    """A lock that outlives its process would keep a run from being continued."""
    place = RunPlace(tmp_path, engine=None)
    folder = place.runs_folder / "smoke" / "20261127T000000Z-0000"
    folder.mkdir(parents=True)
    place.temporary_folder.mkdir()

    with lock_run_folder(folder):
        assert place.find_leftovers().locked_runs == (folder.name,)
    assert place.find_leftovers().is_nothing


def test_growth_is_limited_by_the_medians_of_both_ends() -> None:
    """One sample that is taken while a connection is open must not decide."""
    steady = [SampleOfCounts(mounts=1, descriptors=20 + 30 * (number == 39)) for number in range(40)]
    growing = [SampleOfCounts(mounts=1 + number // 20, descriptors=20 + number) for number in range(40)]

    assert [line.is_met for line in list_growth_lines(steady)] == [True, True]
    assert [line.is_met for line in list_growth_lines(growing)] == [False, False]
    assert [line.result for line in list_growth_lines(growing)] == ["1 → 2", "24.5 → 54.5"]


@pytest.mark.parametrize(
    "problem",
    [
        {"interruption": "ctrl_c", "after_end": Leftovers(networks=("data",))},
        {"interruption": "kill_runner", "after_end": Leftovers(running_containers=("worker",), containers=("worker",))},
        {"interruption": "kill_runner", "after_clean": Leftovers(temporary_files=("keys",))},
        {"interruption": "none", "problem": "exit code 1, expected 0 or 3"},
    ],
)
def test_one_start_with_a_problem_misses_a_limit(problem: dict[str, object]) -> None:
    records = [make_record(number, INTERRUPTIONS[number % len(INTERRUPTIONS)]) for number in range(10)]
    assert [line.what for line in list_start_lines(records) if not line.is_met] == ["starts"]  # ten are too few

    lines = list(list_start_lines([*records, make_record(10, **{"interruption": "none", **problem})]))  # type: ignore[arg-type]

    assert [line.result.split(":")[0] for line in lines if not line.is_met] == ["11", "1"]


def test_a_killed_runner_may_leave_what_clean_removes() -> None:
    """Only its nodes must end by themselves."""
    killed = make_record(0, "kill_runner", after_end=Leftovers(containers=("worker",), temporary_files=("keys",)))

    assert [line.what for line in list_start_lines([killed]) if not line.is_met] == ["starts"]


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_run_on_a_disk_that_becomes_full_keeps_its_finished_trial_and_is_continued(tmp_path: Path) -> None:
    """The nodes, the runner and the kernel are those of a user; only the disk is small."""
    context = RowContext(tmp_path / "disk", tmp_path)
    context.folder.mkdir()

    lines = list(measure_full_disk(context))

    assert [(line.what, line.result) for line in lines if not line.is_met] == []
    assert len(lines) == 8


def test_a_row_that_failed_is_on_the_page_with_its_reason() -> None:
    """A missing row would look like one that was not measured."""
    failed = RowOutcome(row="engine", commit="abc1234", date="2026-11-27", failed="TimeoutError: no answer", wall_s=3)
    late = ResultLine(what="left afterwards", result="networks: data", limit="nothing", is_met=False)
    shown = ResultLine(what="exit code", result="0")
    measured = failed.model_copy(update={"row": "disk", "failed": "", "lines": (late, shown)})

    text = "\n".join(line for outcome in (failed, measured) for line in format_row(outcome))

    assert "failed: TimeoutError: no answer" in text
    assert "| left afterwards | networks: data | nothing | **no** |" in text
    assert "| exit code | 0 | – | – |" in text
    assert text.count("Commit abc1234") == 2
    assert not failed.is_met
    assert not measured.is_met


@pytest.mark.parametrize(
    "scenario", [make_parallel_scenario(3), make_containers_scenario()], ids=["parallel", "containers"]
)
def test_scenarios_of_rows_with_many_containers_are_valid(scenario: dict[str, Any]) -> None:
    """These rows take minutes, so no test measures them."""
    assert Scenario.decode(scenario).trials()
