"""The shipped scenario with a ResNet-18, on its smallest size."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import ensayo
from analysis.reading.run_folder import RunFolder
from analysis.results.analyse_run import analyse_run
from compose.scenario_files.load import find_scenario

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FOLDER = find_scenario("own-model").parent / "own_model"
SMALL = {"workers": "2", "baseline": "false", "workload.model.arguments": "{width: 4}", "workload.epochs": "1"}


def test_a_ring_and_a_server_train_the_resnet_to_the_same_quality(tmp_path: Path) -> None:
    """Both are synchronous, so the scenario compares their times alone."""
    run = ensayo.rehearse("own-model", "simulated", tmp_path, SMALL)
    ring, server = analyse_run(RunFolder(run.folder))[1].trials

    assert ring.final == pytest.approx(server.final, rel=0.02)
    assert ring.typical_step_seconds is not None
    assert server.typical_step_seconds is not None
    assert ring.typical_step_seconds < server.typical_step_seconds


def test_the_resnet_has_as_many_parameters_as_that_of_the_paper() -> None:
    """Its form for pictures of 32 x 32 pixels and ten classes has 11,173,962."""
    network = runpy.run_path(str(FOLDER / "resnet18.py"))["ResNet18"](inputs=(3, 32, 32), outputs=10)

    assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962


def test_the_pictures_are_those_that_the_script_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who changes the script can see what the shipped file is."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / "make_pictures.py"), run_name="__main__")

    drawn, shipped = np.load(tmp_path / "pictures.npz"), np.load(FOLDER / "pictures.npz")
    assert {name: drawn[name].tobytes() for name in ("x", "y")} == {
        name: shipped[name].tobytes() for name in ("x", "y")
    }
