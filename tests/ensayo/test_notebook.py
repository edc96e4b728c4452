"""The example notebook: it runs in a kernel, shows what its text states, and is committed without outputs."""

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient


@pytest.fixture(scope="module")
def stored_notebook(pytestconfig: pytest.Config) -> Any:
    return nbformat.read(pytestconfig.rootpath / "docs" / "notebook.ipynb", as_version=4)


def test_the_notebook_is_stored_without_outputs(stored_notebook: Any) -> None:
    """Outputs contain the folder and the date of one run, and would change in every commit."""
    nbformat.validate(stored_notebook)

    code_cells = [cell for cell in stored_notebook.cells if cell.cell_type == "code"]

    assert [cell.source for cell in code_cells if cell.outputs or cell.execution_count] == []


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel(stored_notebook: Any, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The notebook is the first code that a user of a notebook runs; a figure must appear as a picture."""
    client = NotebookClient(
        stored_notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )

    executed = client.execute(env=os.environ | {"PYTHONPATH": str(pytestconfig.rootpath)})

    outputs = {cell.source: cell.outputs for cell in executed.cells if cell.cell_type == "code"}
    printed = "".join(each["text"] for cell in outputs.values() for each in cell if each.get("name") == "stdout")
    assert printed.startswith("valid ()\nruns/notebook/")
    assert printed.endswith("the figure needs finished trials of a strategy that switches\n")
    assert "image/png" in outputs['run.plot("speedup")'][0]["data"]
    assert (tmp_path / "step_breakdown.png").is_file()
