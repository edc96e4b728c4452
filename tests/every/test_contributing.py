"""The snippets of CONTRIBUTING.md, executed in a copy of the project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = ("analysis", "benchmarks", "compose", "docs", "ensayo", "images", "proto", "scenarios", "services", "tests")
SNIPPET = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW_FILE = re.compile(r"^(?:.*\b)?[Cc]reate `([^`]+)`", re.MULTILINE)
CHANGED_FILE = re.compile(r"`([^`]+\.(?:py|md))`")
KINDS = "bf16 or Bf16 or chain or Chain or majority or Majority or SquareRoot or table or all_lines"


@pytest.fixture(scope="module")
def extended(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which every part of CONTRIBUTING.md has been added as the page says."""
    project = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        source = pytestconfig.rootpath / name
        shutil.copytree(source, project / name, ignore=shutil.ignore_patterns("__pycache__", "wheels"))
    shutil.copy(pytestconfig.rootpath / "pyproject.toml", project)
    page = (pytestconfig.rootpath / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        follow(section, project)
    return project


def follow(section: str, project: Path) -> None:
    """Do what a section says: write its files, change those that it names."""
    end, path = 0, project
    for snippet in SNIPPET.finditer(section):
        language, content = snippet.groups()
        before, end = section[end : snippet.start()], snippet.end()
        if language == "diff":
            path = project / (CHANGED_FILE.findall(before) or [path])[-1]
            change(path, content)
        else:
            (created,) = NEW_FILE.findall(before)[-1:]
            path = project / created
            assert not path.exists(), f"{created} exists already"
            path.write_text(content, encoding="utf-8")


def change(path: Path, diff: str) -> None:
    """Apply a diff without line numbers; its lines stand exactly once in the file."""
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} does not contain these lines exactly once:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(project: Path, *command: str) -> str:
    """Run a Python program in the copy, whose packages it then imports; return its output."""
    done = subprocess.run([sys.executable, *command], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_every_part_of_the_page_passes_the_tests_of_its_family(extended: Path) -> None:
    """A page that is not executed is out of date after the next change of a contract."""
    families = ("compressor", "collective", "strategy", "law")
    files = [*(f"tests/every/test_every_{family}.py" for family in families), "tests/analysis/test_figures.py"]

    output = run(extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", KINDS, *files)

    assert re.search(r"^\d+ passed", output, re.MULTILINE), output


@pytest.mark.slow
def test_a_scenario_with_the_parts_of_the_page_is_valid(extended: Path) -> None:
    """A registered kind can be declared."""
    strategies = {"ring": "{kind: majority_vote}", "ring_fp16": "{kind: all_reduce, compress: {kind: bf16}}"}
    chain = {"ring": "{kind: all_reduce, collective: {kind: chain}}"}

    for declared in (strategies, chain):
        settings = [f"--set=strategies.{label}={value}" for label, value in declared.items()]
        assert "ring_fp16" in run(
            extended, "-m", "ensayo", "plan", "half-precision", "--engine", "simulated", *settings
        )
