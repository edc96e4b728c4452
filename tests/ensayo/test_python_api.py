"""The Python API: its names, and the snippet of the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ensayo


@pytest.mark.parametrize("name", ensayo.NAMES)
def test_every_public_name_can_be_imported(name: str) -> None:
    """Names are imported when they are first used, so a wrong module shows only then."""
    assert callable(getattr(ensayo, name))


@pytest.mark.slow
def test_the_snippet_of_the_readme_runs(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The snippet is the first code that a user of the API copies."""
    readme = (pytestconfig.rootpath / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert re.fullmatch(r"valid \S+/report\.html", done.stdout.splitlines()[-1])
