"""Error messages of broken scenarios. Each file in tests/broken has a `.txt` file with the expected message.

`pytest tests/scenario --rewrite` rewrites the expected messages; they are read in review.
"""

from pathlib import Path

import pytest

from compose.scenario_files.load import load_scenario
from services.schema.errors import UserError

BROKEN = sorted(Path(__file__).parents[1].joinpath("broken").glob("*.yaml"))


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_scenario_error_names_the_place_and_the_allowed_values(
    path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user must be able to repair the file with the message alone."""
    monkeypatch.chdir(pytestconfig.rootpath)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # for copies of code
    expected = path.with_suffix(".txt")

    with pytest.raises(UserError) as raised:
        load_scenario(path)

    if pytestconfig.getoption("--rewrite"):
        expected.write_text(f"{raised.value}\n", encoding="utf-8")
    assert f"{raised.value}\n" == expected.read_text(encoding="utf-8")
