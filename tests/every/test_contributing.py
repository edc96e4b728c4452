"""The snippets of CONTRIBUTING.md, executed in a copy of the project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = ("analysis", "benchmarks", "compose", "docs", "ensayo", "proto", "scenarios", "services", "tests")
SNIPPET = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW_FILE = re.compile(r"^(?:.*\b)?[Cc]reate `([^`]+)`", re.MULTILINE)
CHANGED_FILE = re.compile(r"`([^`]+\.(?:py|md))`")
# Part of CONTRIBUTING.md -> text in the identifiers of the tests that execute its code.
TEST_ID_BY_PART = {
    "compressor": "Fp24",
    "collective": "Chain",
    "strategy": "Majority",
    "law": "SquareRoot",
    "figure": "test_all_lines_lie_inside_their_frame",
}


@pytest.fixture(scope="module")
def extended(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project to which every part of CONTRIBUTING.md has been added as the page describes."""
    project = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        source = pytestconfig.rootpath / name
        shutil.copytree(source, project / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(pytestconfig.rootpath / "pyproject.toml", project)
    page = (pytestconfig.rootpath / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        apply_section(section, project)
    return project


def apply_section(section: str, project: Path) -> None:
    """Follow the instructions of a section: create its files, and apply its diffs."""
    end, path = 0, project
    for snippet in SNIPPET.finditer(section):
        language, content = snippet.groups()
        before, end = section[end : snippet.start()], snippet.end()
        if language == "diff":
            path = project / (CHANGED_FILE.findall(before) or [path])[-1]
            apply_diff(path, content)
        else:
            (created,) = NEW_FILE.findall(before)[-1:]
            path = project / created
            assert not path.exists(), f"{created} exists already"
            path.write_text(content, encoding="utf-8")


def apply_diff(path: Path, diff: str) -> None:
    """Apply a diff without line numbers; its old lines must occur exactly once in the file."""
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} does not contain these lines exactly once:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(project: Path, *command: str) -> str:
    """Run a Python program that imports the packages of the copy; return its output."""
    completed = subprocess.run([sys.executable, *command], cwd=project, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout[-4000:] + completed.stderr[-4000:]
    return completed.stdout


@pytest.mark.slow
def test_every_part_of_the_page_passes_the_tests_of_its_family(extended: Path) -> None:
    """A page whose code is not executed is out of date after the next change of an interface."""
    families = [part for part in TEST_ID_BY_PART if part != "figure"]
    files = [*(f"tests/every/test_every_{family}.py" for family in families), "tests/analysis/figures/test_figures.py"]
    selected_tests = " or ".join([*TEST_ID_BY_PART.values(), "table"])

    output = run(extended, "-m", "pytest", "-q", "-rpf", "-p", "no:cacheprovider", "-k", selected_tests, *files)

    for part, test_id in TEST_ID_BY_PART.items():
        assert re.search(rf"^PASSED .*{test_id}", output, re.MULTILINE), f"no test executed the {part}:\n{output}"
    assert run(extended, "-c", "from analysis.figures import FIGURES; print('throughput' in FIGURES)") == "True\n"


@pytest.mark.slow
def test_scenario_with_the_parts_of_the_page_is_valid(extended: Path) -> None:
    """A scenario can name a registered kind."""
    strategies = {"ring": "{kind: majority_vote}", "ring_fp16": "{kind: all_reduce, compress: {kind: fp24}}"}
    chain = {"ring": "{kind: all_reduce, collective: {kind: chain}}"}

    for labels in (strategies, chain):
        settings = [f"--set=strategies.{label}={value}" for label, value in labels.items()]
        assert "ring_fp16" in run(
            extended, "-m", "ensayo", "plan", "half-precision", "--engine", "simulated", *settings
        )
