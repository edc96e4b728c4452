"""docs/security.md claims only what a test shows."""

import ast
import re
from pathlib import Path

import pytest

ROW = re.compile(r"^\| (?P<measure>[^|]+) \| (?P<modules>[^|]+) \| (?P<tests>[^|]*`test_[^|]+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def rows(pytestconfig: pytest.Config) -> list[tuple[str, str, str]]:
    """Measure, modules and tests of each row in the tables of measures."""
    page = (pytestconfig.rootpath / "docs" / "security.md").read_text(encoding="utf-8")
    return [match.group("measure", "modules", "tests") for match in ROW.finditer(page)]


def names_of_tests(tests_folder: Path) -> set[str]:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in tests_folder.rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_measure_names_existing_modules_and_tests(
    rows: list[tuple[str, str, str]], pytestconfig: pytest.Config
) -> None:
    """A renamed test or module would leave a claim that cannot be checked."""
    known_tests = names_of_tests(pytestconfig.rootpath / "tests")
    for measure, modules, tests in rows:
        paths = re.findall(r"`([^`]+\.py)`", modules)
        assert paths, measure
        assert all((pytestconfig.rootpath / path).is_file() for path in paths), modules
        assert set(re.findall(r"`([^`]+)`", tests)) <= known_tests, tests
    assert len(rows) > 25, "the tables are found"
