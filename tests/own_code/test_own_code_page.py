"""The examples of docs/own-code.md work as they are written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from data_files import scenario_of
from programs.notebooks import run_cells

import ensayo
from compose.engines.containers.node_image.packages import IMAGE_PYTHON


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.torch), 1], ids=["torch", "python"])
def test_the_examples_of_the_page_train(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A user copies two blocks into two files and runs them."""
    if number == 0:
        pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = (pytestconfig.rootpath / "docs" / "own-code.md").read_text()
    code, scenario = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[number] for kind in ("python", "yaml"))
    (tmp_path / "my_model.py").write_text(code)
    (tmp_path / "mine.yaml").write_text(scenario)

    result = ensayo.rehearse(tmp_path / "mine.yaml", "simulated", tmp_path / "runs")

    assert result.verdict == "valid", result.reasons
    accuracies = [trial["final"]["accuracy"] for trial in result.summary["trials"]]
    assert len(accuracies) == 3
    assert min(accuracies) > 0.8


@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.torch)], ids=["function", "torch dataset"])
def test_the_datasets_of_the_page_can_be_learned(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A user copies the code, and one line into a scenario."""
    if number == 3:
        pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = (pytestconfig.rootpath / "docs" / "own-code.md").read_text()
    code, section = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[number] for kind in ("python", "yaml"))
    (tmp_path / "my_data.py").write_text(code)
    document = scenario_of(yaml.safe_load(section)["dataset"])
    document["workload"] |= {"model": {"kind": "mlp"}, "epochs": 10, "optimiser": {"kind": "adam", "rate": 0.01}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(document))

    result = ensayo.rehearse(tmp_path / "mine.yaml", "simulated", tmp_path / "runs")

    assert result.verdict == "valid", result.reasons
    (trial,) = result.summary["trials"]
    assert trial["final"]["accuracy"] > 0.9


@pytest.mark.torch
def test_the_example_in_python_draws_speedup_curves_in_a_notebook(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user pastes the class and the calls into one cell; the last line shows the curves."""
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = (pytestconfig.rootpath / "docs" / "own-code.md").read_text()
    source = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[4].replace(
        "rehearse(", 'rehearse(engine="simulated", '
    )

    outputs = run_cells(tmp_path, pytestconfig.rootpath, "%matplotlib inline", source)

    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.torch
def test_the_script_of_the_page_measures_the_speed_of_a_device(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """A user copies it beside the module, and its output into the scenario."""
    pytest.importorskip("torch")
    page = (pytestconfig.rootpath / "docs" / "own-code.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_model.py").write_text(blocks[0])
    (script,) = (block for block in blocks if "throughput: {" in block)
    (tmp_path / "measure.py").write_text(script)

    printed = subprocess.run([sys.executable, "measure.py"], cwd=tmp_path, capture_output=True, text=True, check=True)

    key, _, value = printed.stdout.strip().partition(": ")
    assert ensayo.Worker(**{key: value})["throughput"] == value
    assert re.fullmatch(r"[1-9]\d*/s", value)


def test_the_page_states_the_python_of_the_node_image(pytestconfig: pytest.Config) -> None:
    """A user has to choose it before the first installation."""
    page = (pytestconfig.rootpath / "docs" / "own-code.md").read_text()

    assert f"Python {IMAGE_PYTHON}, the version of the node image" in page
    assert f"the minor version of Python that the node image has, {IMAGE_PYTHON}," in page
