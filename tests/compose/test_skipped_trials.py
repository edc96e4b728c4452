"""Trials that need a GPU on a host without one: they fail, or are skipped if the scenario says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import RunObserverStub, ScriptedEngine, run_smoke_scenario

from analysis.reading.run_folder import RunFolder
from analysis.report.summary_text import summary_sentences
from analysis.results.analyse_run import analyse_run
from compose.engines.containers.engine import NO_GPU_RUNTIME
from compose.engines.local import LocalEngine
from compose.runs.interrupted_run import read_interrupted_run
from services.runtime.device import cuda
from services.schema.errors import UserError

ON_GPU = {"sweep": "{cluster.worker.device: [cpu, cuda]}"}
NO_GPU = "no GPU on this host (CuPy failed)"


class PrintingObserver(RunObserverStub):
    """Observer that keeps the texts that a terminal would show."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def engine_preparation_started(self, description: str) -> None:
        self.texts.append(description)


@pytest.fixture
def gpu_reason(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The engine reports this reason for a missing GPU; None: there is a GPU."""
    monkeypatch.setattr(ScriptedEngine, "missing_gpu_reason", lambda _: request.param)


no_gpu = pytest.mark.parametrize("gpu_reason", ["CuPy failed"], indirect=True)


@no_gpu
def test_a_scenario_can_skip_the_trials_that_need_a_gpu(gpu_reason: None, tmp_path: Path) -> None:
    """The other trials run; terminal, manifest and report name those that did not."""
    observer = PrintingObserver()
    run = run_smoke_scenario(ScriptedEngine({}), tmp_path, observer, missing_gpu="skip", **ON_GPU)

    manifest = json.loads((run.folder / "manifest.json").read_text())
    summary = analyse_run(RunFolder(run.folder))[1]
    assert len(run.statuses) == len(manifest["trials"]) == 6
    assert not any("cuda" in name for name in manifest["trials"])
    assert [each.reason for each in summary.skipped] == [NO_GPU] * 6
    assert {each.condition for each in summary.skipped} == {"device cuda"}
    assert f"6 of 12 trials were skipped: {NO_GPU}" in summary_sentences(summary)
    assert observer.texts == [f"6 trials will not run (missing_gpu: skip): {NO_GPU}"]


@no_gpu
def test_trials_that_need_a_gpu_run_unless_the_scenario_skips_them(gpu_reason: None, tmp_path: Path) -> None:
    """A silent fallback would show a comparison without the GPU that was asked for; such a trial fails instead."""
    run = run_smoke_scenario(ScriptedEngine({}), tmp_path, **ON_GPU)

    assert len(run.statuses) == 12
    assert json.loads((run.folder / "manifest.json").read_text())["skipped"] == []


@pytest.mark.parametrize("gpu_reason", [None], indirect=True)
def test_no_trial_is_skipped_on_a_host_with_a_gpu(gpu_reason: None, tmp_path: Path) -> None:
    run = run_smoke_scenario(ScriptedEngine({}), tmp_path, missing_gpu="skip", **ON_GPU)

    assert len(run.statuses) == 12
    assert analyse_run(RunFolder(run.folder))[1].skipped == []


@no_gpu
def test_a_run_of_which_every_trial_needs_a_gpu_is_rejected(gpu_reason: None, tmp_path: Path) -> None:
    """An empty run would look like a success."""
    settings = {"missing_gpu": "skip", "cluster.worker.device": "cuda"}

    with pytest.raises(UserError, match="smoke: this host can run no trial: no GPU on this host"):
        run_smoke_scenario(ScriptedEngine({}), tmp_path, **settings)
    assert list(tmp_path.iterdir()) == []


@no_gpu
def test_an_interrupted_run_keeps_its_skipped_trials(gpu_reason: None, tmp_path: Path) -> None:
    """Otherwise the continued run would plan other trials than the run that was started."""
    run = run_smoke_scenario(ScriptedEngine({}), tmp_path, missing_gpu="skip", **ON_GPU)

    assert len(read_interrupted_run(run.folder).skipped_trials) == 6


def test_damaged_records_of_skipped_trials_are_left_out(tmp_path: Path) -> None:
    """A manifest may be cut off or edited; a report must still be written."""
    records: list[Any] = [{"trial": "0"}, 3, {"trial": "1", "strategy": "s", "workers": 1, "labels": {}, "reason": "r"}]
    (tmp_path / "manifest.json").write_text(json.dumps({"skipped": records}))

    assert [each["trial"] for each in RunFolder(tmp_path).skipped_trials] == ["1"]


def test_processes_have_no_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the error, so that a missing library and a missing driver can be distinguished."""

    def fail() -> None:
        raise ImportError("libcuda.so.1")

    monkeypatch.setattr(cuda, "_import_cupy", fail)

    assert LocalEngine().missing_gpu_reason() == "CuPy failed with ImportError('libcuda.so.1')"
    assert "nvidia" in NO_GPU_RUNTIME
