"""The table "Find the code" of docs/design.md, and all paths of modules in the documentation."""

import re
from pathlib import Path

import pytest

PACKAGES = {"services", "compose", "analysis", "ensayo", "benchmarks", "proto"}


def rows_of_the_code_map(root: Path) -> list[list[str]]:
    """Return the cells of the table's rows: question, modules, names."""
    section = (root / "docs" / "design.md").read_text(encoding="utf-8").split("### Find the code")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[1:]]


def test_every_name_of_the_code_map_is_defined_in_its_modules(pytestconfig: pytest.Config) -> None:
    """A reader who follows the table must find the name by a search in the module or folder."""
    rows = rows_of_the_code_map(pytestconfig.rootpath)

    assert len(rows) >= 8
    for question, modules, names in rows:
        paths = [pytestconfig.rootpath / path for path in re.findall(r"`([^`]+)`", modules)]
        files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for name in re.findall(r"`([^`]+)`", names):
            for part in name.split("."):
                assert re.search(rf"^\s*(def|class) {part}\b|^{part}\b", text, re.MULTILINE), f"{question}: {name}"


def test_every_module_that_the_documentation_names_exists(pytestconfig: pytest.Config) -> None:
    """Modules move; a path that no longer exists sends the reader nowhere."""
    root = pytestconfig.rootpath
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    named = {path for page in pages for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|json|proto))`", page.read_text())}

    assert len(named) >= 20
    assert [path for path in sorted(named) if path.split("/")[0] in PACKAGES and not (root / path).exists()] == []
