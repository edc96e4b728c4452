"""Measurement of reference convergence points: it can be interrupted, and a workload has points of one commit only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.convergence.reference_points import read_reference_file
from benchmarks.convergence import bench
from benchmarks.convergence.bench import FIRST_SEED, main
from benchmarks.convergence.catalogue import REFERENCE_CASES, ReferenceCase, convergence_workload
from services.scenario.workload import Workload

SEEDS = 5
CASES = 5  # batches of the workload `regression`


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Batch and seed of every training; samples are the batch times the seed, and seed 1003 misses the target."""
    runs: list[tuple[int, int]] = []

    def train(workload: Any, seed: int) -> int | None:
        runs.append((workload.batch, seed))
        return None if seed == FIRST_SEED + 2 else workload.batch * seed

    monkeypatch.setattr(bench, "samples_to_target_of_one_worker", train)
    return runs


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """measure("abc", "--workloads", "regression") measures with this commit."""

    def run(commit: str, *arguments: str) -> int:
        monkeypatch.setattr(bench, "_current_commit", lambda: commit)
        files = {name: str(tmp_path / name) for name in ("state", "file", "page")}
        options = [word for name, path in files.items() for word in (f"--{name}", path)]
        return main(["--seeds", str(SEEDS), *options, *arguments])

    return run


def test_an_interrupted_measurement_goes_on_with_the_missing_runs(
    trainings: list[tuple[int, int]], measure: Callable[..., int], tmp_path: Path
) -> None:
    """Large models take hours."""
    measure("abc", "--workloads", "regression")
    state = json.loads((tmp_path / "state").read_text())
    del state["regression"]["runs"]["64"]["1004"]
    (tmp_path / "state").write_text(json.dumps(state))
    finished = len(trainings)

    measure("abc", "--workloads", "regression")

    assert finished == CASES * SEEDS
    assert trainings[finished:] == [(64, 1004)]


def test_runs_of_another_commit_are_measured_anew(
    trainings: list[tuple[int, int]], measure: Callable[..., int]
) -> None:
    """A mean over two versions of the code describes neither."""
    measure("abc", "--workloads", "regression")
    measure("abd", "--workloads", "regression")

    assert len(trainings) == 2 * CASES * SEEDS


def test_written_workloads_replace_only_themselves(
    trainings: list[tuple[int, int]], measure: Callable[..., int], tmp_path: Path
) -> None:
    """A new workload is one entry of the catalogue and one command; it must not discard the other points."""
    measure("abc", "--workloads", "regression", "--write", "machine A")
    measure("abd", "--workloads", "quickstart", "--write", "machine B")

    regression, quickstart = sorted(read_reference_file(tmp_path / "file"), key=lambda each: each.name == "quickstart")
    assert (regression.measured.commit, regression.measured.machine) == ("abc", "machine A")
    assert (quickstart.measured.commit, quickstart.measured.machine) == ("abd", "machine B")
    assert regression.points[1].samples_by_seed == {1001: 64064, 1002: 64128, 1003: None, 1004: 64256, 1005: 64320}
    page = (tmp_path / "page").read_text()
    assert page.index("## quickstart") < page.index("## regression")
    assert "| 64 | 5 | 1 |" in page, "a missed run is counted"


@pytest.mark.parametrize(
    ("commit", "arguments", "problem"),
    [
        ("abc", ("--workloads", "nothing"), "unknown workload nothing; workloads are quickstart"),
        ("abc", ("--seeds", "3"), "--seeds 3 is too few; use at least 5"),
        ("abc+dirty", ("--write", "m"), "--write needs a commit; this checkout is abc+dirty"),
        ("", ("--write", "m"), "--write needs a commit; this checkout is no checkout"),
    ],
)
def test_a_measurement_that_cannot_be_published_does_not_start(
    trainings: list[tuple[int, int]],
    measure: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    commit: str,
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    assert measure(commit, *arguments) == 2
    assert problem in capsys.readouterr().err
    assert trainings == []


@pytest.mark.parametrize(("schedule", "factor"), [({"kind": "constant"}, 3), ({"kind": "cosine"}, 1)])
def test_a_schedule_keeps_the_budget_of_the_scenario(
    schedule: dict[str, str], factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a longer budget, the learning rate of the reference would fall more slowly than that of the trials."""
    declared = REFERENCE_CASES["regression"].load_workload()
    changed = Workload.model_validate(declared.model_dump() | {"schedule": schedule})
    monkeypatch.setattr(ReferenceCase, "load_workload", lambda _: changed)
    run_workload = ReferenceCase("regression", (64,)).make_run_workload(64)

    assert run_workload.epochs == factor * declared.epochs
    assert convergence_workload(run_workload) == convergence_workload(changed)


def test_a_schedule_in_steps_has_no_reference() -> None:
    """A step is another number of samples with every batch."""
    declared = REFERENCE_CASES["regression"].load_workload()
    changed = {"schedule": {"kind": "linear_warmup", "warmup_steps": 10}}
    workload = Workload.model_validate(declared.model_dump() | changed)

    with pytest.raises(ValueError, match="needs a schedule in shares of the budget, not in steps"):
        convergence_workload(workload)


def test_the_page_states_the_scaled_learning_rate(
    trainings: list[tuple[int, int]], measure: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The points of a workload with batch scaling have different learning rates."""
    scaling = {"batch_scaling": {"rule": "sqrt", "base_batch": 64}}
    workload = Workload.model_validate(REFERENCE_CASES["regression"].load_workload().model_dump() | scaling)
    monkeypatch.setattr(ReferenceCase, "load_workload", lambda _: workload)

    measure("abc", "--workloads", "regression", "--write", "machine A")

    (reference,) = read_reference_file(tmp_path / "file")
    assert reference.batch_rate_factor(256) == 2.0
    assert "The learning rate is that of batch 64, scaled with rule sqrt." in (tmp_path / "page").read_text()


@pytest.mark.parametrize(("batch_case", "sizes"), [("", (64, None)), ("growing", (None, 16))])
def test_the_workload_of_a_reference_may_be_a_case_of_the_sweep(
    batch_case: str, sizes: tuple[int | None, int | None]
) -> None:
    """A case may scale the learning rate with the batch, which the workload before the sweep does not."""
    workload = ReferenceCase("mlperf-like-lenet", (64,), batch_case).load_workload()

    assert (workload.batch, workload.batch_per_worker) == sizes
