"""What does a broken scenario say? Each file in tests/broken stands beside its expected message.

`pytest tests/scenario --rewrite` writes the messages anew; they are read in review.
"""

from pathlib import Path

import pytest

from compose.scenario_files.load import load_scenario
from services.schema.errors import UserError

BROKEN = sorted(Path(__file__).parents[1].joinpath("broken").glob("*.yaml"))


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_scenario_says_where_it_is_wrong_and_what_is_allowed(
    path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gets an error must be able to mend the file with nothing but the message."""
    monkeypatch.chdir(pytestconfig.rootpath)
    expected = path.with_suffix(".txt")

    with pytest.raises(UserError) as raised:
        load_scenario(path)

    if pytestconfig.getoption("--rewrite"):
        expected.write_text(f"{raised.value}\n", encoding="utf-8")
    assert f"{raised.value}\n" == expected.read_text(encoding="utf-8")
