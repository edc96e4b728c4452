"""Measurement of reference convergence points: it can be interrupted, and a workload has points of one commit only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.convergence.reference_points import read_reference_file
from benchmarks.convergence import bench
from benchmarks.convergence.bench import FIRST_SEED, main

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
