"""Execution of notebook cells in a kernel."""

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def run_cells(folder: Path, root: Path, *sources: str) -> list[Any]:
    """Run cells in a new kernel in a folder, and return the outputs of the last cell.

    Args:
        folder: current folder of the kernel.
        root: folder of Ensayo's packages.
        sources: text of each cell.
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    executed = client.execute(env=os.environ | {"PYTHONPATH": str(root)})
    outputs: list[Any] = executed.cells[-1].outputs
    return outputs
