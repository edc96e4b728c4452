"""The bench of fidelity: its gates, its table, and rows that fail without taking the others with them."""

import json
import time
from pathlib import Path

import pytest

from compose.fidelity import __main__ as bench
from compose.fidelity.line import Gate, Line, Outcome
from services.measure import burn, rate


def line(*samples: float, **gate: float) -> Line:
    """A line that declares 100."""
    return Line(what="a flow", unit="Mbit/s", declared=100.0, samples=samples, gate=Gate(**gate))


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        (line(99.0, 101.0, 130.0, median_off=0.01), True),
        (line(98.9, 98.9, 98.9, median_off=0.01), False),
        (line(99.0, 100.0, 106.0, median_off=0.01, each_off=0.05), False),
        (line(100.4, median_off_by=0.5), True),
        (line(100.6, median_off_by=0.5), False),
        (line(30.0, at_most=30.0), True),
        (line(31.0, at_most=30.0), False),
    ],
)
def test_a_gate_holds_or_does_not(found: Line, ok: bool) -> None:
    assert found.ok is ok


def test_a_row_that_fails_says_why_and_the_next_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour of measuring must not end for one broken row."""

    def broken(*_: object) -> list[Line]:
        raise RuntimeError("no such\nrung")

    monkeypatch.setattr(bench, "rows", lambda: {"broken": broken, "good": lambda *_: [line(100.0, median_off=0.01)]})
    monkeypatch.setattr(bench, "DockerEngine", Prepared)
    monkeypatch.setattr("sys.argv", ["fidelity", "--rows", "", "--state", str(tmp_path / "state.json")])

    code = bench.main()
    printed = capsys.readouterr().out

    assert code == 1
    assert "| FAILED | broken |  | RuntimeError: no such rung |" in printed
    assert "| ok | a flow | 100 Mbit/s | 100 (100 - 100) Mbit/s | +0.00% | median ±1 % |" in printed.replace(
        "1%", "1 %"
    )


def test_rows_that_are_known_are_not_measured_again_and_failed_ones_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state, measured = tmp_path / "state.json", []
    known = [Outcome(row="done", lines=(line(100.0),)), Outcome(row="failed", failed="engine away")]
    state.write_text(json.dumps([outcome.model_dump(mode="json") for outcome in known]))
    table = {name: lambda *_, name=name: measured.append(name) or [line(100.0)] for name in ("done", "failed")}
    monkeypatch.setattr(bench, "rows", lambda: table)
    monkeypatch.setattr(bench, "DockerEngine", Prepared)
    monkeypatch.setattr("sys.argv", ["fidelity", "--rows", "done,failed", "--state", str(state)])

    assert bench.main() == 0
    assert measured == ["failed"]


def test_a_rate_is_what_came_after_the_first_arrival() -> None:
    """The first arrival ends a time that nobody measured."""
    assert rate([(1.0, 999), (2.0, 50), (3.0, 50)]) == 50.0
    assert rate([(1.0, 999)]) == 0.0


def test_burning_steps_are_of_equal_work() -> None:

    found = burn(time.monotonic() + 0.1, 0.005)

    assert len(found["steps_s"]) > 2
    assert found["cpu_s_per_step"] == pytest.approx(0.005, rel=0.5)


class Prepared:
    """An engine that is never asked for anything else."""

    def prepare(self, watch: object) -> None:
        """Nothing to do."""
