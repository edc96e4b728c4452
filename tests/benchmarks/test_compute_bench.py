"""Command line of the benchmark of training steps, its cases, and the training loop of Ensayo."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from benchmarks.compute import __main__ as bench
from benchmarks.compute.batches import DISTINCT_BATCHES, training_batches
from benchmarks.compute.cases import CASES
from benchmarks.compute.results import MAX_GROWTH_BYTES
from benchmarks.compute.training import EnsayoTraining
from services.learning.models import USER_MODEL_TYPES, AnyModel
from services.schema.errors import HostError


def test_every_model_has_a_case_and_a_counterpart_in_pytorch(pytestconfig: pytest.Config) -> None:
    """A model that is not compared may be slow, or differ from the usual one, without notice."""
    union, _ = get_args(AnyModel)
    kinds = {model.model_fields["kind"].default for model in set(get_args(union)) - set(USER_MODEL_TYPES)}
    counterparts = pytestconfig.rootpath / "benchmarks" / "compute" / "torch_models"

    assert {case.model.kind for case in CASES.values()} == kinds
    assert {path.stem for path in counterparts.glob("[!_]*.py")} == kinds


@pytest.mark.parametrize("name", CASES)
def test_training_of_a_case_reduces_the_loss(name: str) -> None:
    """Steps of a diverged training may be faster or slower than those of a real one."""
    training = EnsayoTraining(CASES[name])

    losses = [training.run_step() for _ in range(3 * DISTINCT_BATCHES)]

    assert np.mean(losses[-DISTINCT_BATCHES:]) < np.mean(losses[:DISTINCT_BATCHES])


def test_batches_are_whole_and_repeat_with_new_random_numbers() -> None:
    """Both sides get the same batches; masks and noise must not repeat with them."""
    case = CASES["mlp"]
    batches = training_batches(case, case.dataset.load("float32"))
    first, *_, repeated = (next(batches) for _ in range(DISTINCT_BATCHES + 1))

    assert len(first[0]) == case.batch
    assert np.array_equal(first[0], repeated[0])
    assert first[2] != repeated[2]


def test_memory_of_training_does_not_grow() -> None:
    """A leak of one small object per step would be at least 32 KB over 1,000 steps; one of a gradient, 70 MB."""
    memory = bench._run_in_process("step_memory", "mlp", "Ensayo", "1000", threads=1)

    assert 0 <= memory["peak_bytes"] < 10_000_000
    assert memory["growth_bytes"] < MAX_GROWTH_BYTES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "lenet"], "unknown case lenet; cases are linear, mlp, lenet5"),
        (["--cases", "linear", "--write", "here"], "--write: the page needs all cases; missing: mlp, lenet5"),
    ],
    ids=["unknown case", "incomplete page"],
)
def test_wrong_arguments_end_the_program_before_it_measures(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page without some rows would look complete."""
    monkeypatch.setattr(sys, "argv", ["benchmarks.compute", *arguments])
    monkeypatch.setattr(bench, "_run_in_process", lambda *_, **__: pytest.fail("measured"))

    assert bench.main() == 2
    assert message in capsys.readouterr().err


def test_a_checkout_with_changes_cannot_be_published() -> None:
    """The commit on the page must be the measured code."""
    assert bench._unwritable_page_reason(list(CASES), is_one_commit=True) is None
    assert bench._unwritable_page_reason(list(CASES), is_one_commit=False) is not None


def test_the_page_states_whether_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers must not take the times for those of a GPU, with and without one."""

    def select_no_gpu(_: str) -> None:
        raise HostError("no usable GPU")

    monkeypatch.setattr(bench, "select_compute_device", select_no_gpu)
    without_gpu = bench.gpu_sentence()
    monkeypatch.setattr(bench, "select_compute_device", lambda _: SimpleNamespace(description="GPU X"))

    assert without_gpu == "GPU: no GPU."
    assert bench.gpu_sentence() == "GPU: GPU X, not measured; this benchmark compares compute on the CPU."


def test_the_results_page_is_a_file_of_the_documentation(pytestconfig: pytest.Config) -> None:
    """`--write` must not write elsewhere when files move."""
    assert Path(pytestconfig.rootpath) / "docs" / "results" / "compute.md" == bench.RESULTS_PAGE
