"""The example of docs/own-code.md works as it is written."""

import re
from pathlib import Path

import pytest

import ensayo


def test_the_first_example_of_the_page_trains(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user copies two blocks into two files and runs them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = (pytestconfig.rootpath / "docs" / "own-code.md").read_text()
    (code, *_), (scenario, *_) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "yaml"))
    (tmp_path / "my_model.py").write_text(code)
    (tmp_path / "mine.yaml").write_text(scenario)

    result = ensayo.rehearse(tmp_path / "mine.yaml", "simulated", tmp_path / "runs")

    assert result.verdict == "valid", result.reasons
    accuracies = [trial["final"]["accuracy"] for trial in result.summary["trials"]]
    assert len(accuracies) == 3
    assert min(accuracies) > 0.8
