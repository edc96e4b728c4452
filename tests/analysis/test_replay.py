"""Replay: unusable log lines are reported with file and line, since partial logs give other parameters."""

import json
from pathlib import Path

import pytest
from replay.trial import PUSH_COLUMNS, _arrivals

from services.schema.errors import ProtocolError

ROW = [1, 0, 0, 0, 32]


def _line(columns: object, rows: object) -> str:
    value = {"columns": columns, "rows": rows}
    return ":::MLLOG " + json.dumps({"time_ms": 1.0, "key": "shard_updates", "value": value}) + "\n"


def test_rows_are_dicts_of_integers_by_column(tmp_path: Path) -> None:
    log = tmp_path / "server-0.log"
    log.write_text(_line([*PUSH_COLUMNS, "time_s"], [[*ROW, 0.5]]) + _line(PUSH_COLUMNS, []))

    (row,) = _arrivals(log).updates

    assert row == dict(zip(PUSH_COLUMNS, ROW, strict=True))
    assert set(map(type, row.values())) == {int}


@pytest.mark.parametrize(
    ("second_line", "message"),
    [
        (_line(PUSH_COLUMNS, [ROW])[:-20], "server-0.log:2: cut off in the middle"),
        (_line(PUSH_COLUMNS[:-1], [ROW[:-1]]), "server-0.log:2: shard_updates has no samples"),
        (_line(PUSH_COLUMNS, [["first", *ROW[1:]]]), "server-0.log:2: shard_updates has a value that is not a number"),
        (_line(PUSH_COLUMNS, [[None, *ROW[1:]]]), "server-0.log: shard_updates with null in one of version, worker"),
    ],
)
def test_an_unusable_line_ends_a_replay(tmp_path: Path, second_line: str, message: str) -> None:
    log = tmp_path / "server-0.log"
    log.write_text(_line(PUSH_COLUMNS, [ROW]) + second_line)

    with pytest.raises(ProtocolError, match=message):
        _arrivals(log)
