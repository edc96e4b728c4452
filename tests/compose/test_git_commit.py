"""The commit in the manifest of a run."""

import subprocess
from pathlib import Path

import pytest

from compose.runs import git_commit

REPOSITORY = "git init --quiet && git -c user.name=a -c user.email=a@b commit --quiet --allow-empty --message first"


def test_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run can be repeated with the code of the recorded commit."""
    subprocess.run(REPOSITORY, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - a constant
    monkeypatch.setattr(git_commit, "PROJECT_FOLDER", tmp_path)

    assert git_commit.git_commit_of_checkout().keys() == {"id", "dirty"}


def test_wheel_inside_the_repository_of_another_project_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment often lies in the repository of its user."""
    subprocess.run(REPOSITORY, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - a constant
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr(git_commit, "PROJECT_FOLDER", packages)

    assert git_commit.git_commit_of_checkout() == {}
