"""The bench of fidelity: its gates, its table, and rows that fail without taking the others with them."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.fidelity import bench, collectives, training
from benchmarks.fidelity.__main__ import read_verdict_reasons
from benchmarks.fidelity.idle_trial import make_trial, make_trial_plan
from benchmarks.fidelity.node_program import run_equal_steps
from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement, RowOutcome
from compose.calibration.capacity import HostFingerprint
from compose.engines.simulated import SimulatedEngine
from compose.host.capacity_check import TrialHostDemand
from services.runtime.stream_measurement import arrival_rate_bytes_per_s
from services.schema.errors import HostError

HERE = MeasurementOrigin(
    commit="abcdef0", date="2026-01-01T00:00+00:00", host=HostFingerprint(cpu="a", cores=2, kernel="b", engine="c")
)


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the bench with made-up rows on a made-up host, given what was known before."""

    def run(rows: dict[str, Any], *words: str, known: Sequence[RowOutcome] = ()) -> int:
        state = tmp_path / "state.json"
        state.write_text(json.dumps([outcome.model_dump(mode="json") for outcome in known]))
        monkeypatch.setattr(bench, "BENCH_ROWS", rows)
        monkeypatch.setattr(bench, "VERDICT_ROWS", {})
        monkeypatch.setattr(bench, "DockerEngine", Prepared)
        monkeypatch.setattr(bench, "current_origin", lambda _: HERE)
        monkeypatch.setattr("sys.argv", ["fidelity", "--rows", "", "--state", str(state), *words])
        return bench.main(lambda _: "")

    return run


def line(*samples: float, **gate: float) -> FidelityMeasurement:
    """A line that declares 100."""
    return FidelityMeasurement(what="a flow", unit="Mbit/s", declared=100.0, samples=samples, gate=FidelityGate(**gate))


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
def test_a_gate_holds_or_does_not(found: FidelityMeasurement, ok: bool) -> None:
    assert found.is_within_gate is ok


def test_a_row_that_fails_says_why_and_the_next_is_measured(
    bench_of: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour of measuring must not end for one broken row."""

    def broken(*_: object) -> list[FidelityMeasurement]:
        raise RuntimeError("no such\nrung")

    code = bench_of({"broken": broken, "good": lambda *_: [line(100.0, median_off=0.01)]})
    printed = capsys.readouterr().out

    assert code == 1
    assert "| FAILED | broken |  | RuntimeError: no such rung |  |  | abcdef0, 2026-01-01 |" in printed
    assert (
        "| ok | a flow | 100 Mbit/s | 100 (100 - 100) Mbit/s | +0.00% | median ±1% | abcdef0, 2026-01-01 |" in printed
    )


def outcome(row: str, found: float = 100.0, failed: str = "", **changes: Any) -> RowOutcome:
    """What was known of a row."""
    return RowOutcome(
        row=row, origin=HERE.model_copy(update=changes), lines=(line(found, median_off=0.01),), failed=failed
    )


KNOWN = (
    *(outcome("done"), outcome("failed", failed="engine away"), outcome("missed", 150.0)),
    *(outcome("older", commit="1234567"), outcome("dirty", commit="abcdef0+dirty")),
    outcome("elsewhere", host=HERE.host.model_copy(update={"cores": 64})),
)


@pytest.mark.parametrize(
    ("words", "due"),
    [
        ((), ["failed", "elsewhere"]),
        (("--rows", "done,failed,missed,older,dirty"), ["failed", "missed", "older", "dirty"]),
        (("--rows", "done", "--again"), ["done"]),
    ],
)
def test_rows_are_measured_again_when_asked_for_or_when_nothing_is_known(
    bench_of: Callable[..., int], words: tuple[str, ...], due: list[str]
) -> None:
    """A table may be finished over days; rows of other hosts never count."""
    measured: list[str] = []
    rows = {
        known.row: lambda *_, name=known.row: measured.append(name) or [line(100.0, median_off=0.01)] for known in KNOWN
    }

    bench_of(rows, *words, known=KNOWN)

    assert measured == due


def test_the_table_says_which_rows_are_of_other_code(
    bench_of: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of two commits is not a table of either."""
    bench_of({"older": None}, known=[outcome("older", commit="1234567")])

    printed = capsys.readouterr().out

    assert "1234567, 2026-01-01 |" in printed
    assert "Not measured by the code of abcdef0: older;" in printed


def test_a_row_that_fails_takes_the_place_of_none_that_was_finished(
    bench_of: Callable[..., int], tmp_path: Path
) -> None:
    """Half an hour was measured for it once."""
    rows = dict.fromkeys(("done", "failed"), lambda *_: (_ for _ in ()).throw(HostError("slow links")))

    assert bench_of(rows, "--again", known=[outcome("done"), outcome("failed", failed="engine away")]) == 1

    kept = {each["row"]: each["failed"] for each in json.loads((tmp_path / "state.json").read_text())}
    assert kept == {"done": "", "failed": "HostError: slow links"}


def test_a_page_keeps_what_another_host_has_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A new kernel would otherwise empty it, and a row that fails would take the place of one that did not."""
    page = tmp_path / "fidelity.md"
    there = MeasurementOrigin(commit="1234567", date=HERE.date, host=HERE.host.model_copy(update={"kernel": "old"}))
    before = [
        RowOutcome(row=row, origin=there, lines=(line(99.9, median_off=0.01),)) for row in ("kept", "done", "failed")
    ]
    page.with_suffix(".json").write_text(json.dumps([each.model_dump(mode="json") for each in before]))
    monkeypatch.setattr(bench, "BENCH_ROWS", [each.row for each in before])

    bench.write_page(page, "mine", [outcome("done"), outcome("failed", failed="engine away")], HERE)

    text, kept = page.read_text(), json.loads(page.with_suffix(".json").read_text())
    assert [(each["row"], each["origin"]["commit"]) for each in kept] == [
        ("kept", "1234567"),
        ("done", "abcdef0"),
        ("failed", "1234567"),
    ]
    assert text.startswith("# What `make bench-fidelity` printed\n\nMachine: mine (a, 2 cores, Linux b, Docker c).")
    assert text.endswith("Measured on another host (a, 2 cores, Linux old, Docker c): kept, failed.\n")
    assert "FAILED" not in text


def test_pages_are_written_where_readers_look(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.rootpath / "docs" / "results" / "fidelity.md" == bench.RESULTS_PAGE
    assert bench.RESULTS_PAGE.is_file()


def test_a_line_without_a_gate_says_neither_yes_nor_no(
    bench_of: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows what is; a mark would look like a promise kept."""
    bench_of({"shown": lambda *_: [line(200.0)]})

    assert "|  | a flow | 100 Mbit/s | 200 (200 - 200) Mbit/s | +100.00% | – |" in capsys.readouterr().out


def test_a_rate_is_what_came_after_the_first_arrival() -> None:
    """The first arrival ends a time that nobody measured."""
    assert arrival_rate_bytes_per_s([(1.0, 999), (2.0, 50), (3.0, 50)]) == 50.0
    assert arrival_rate_bytes_per_s([(1.0, 999)]) == 0.0


@pytest.mark.wall_clock
def test_burning_steps_are_of_equal_work() -> None:

    found = run_equal_steps(time.monotonic() + 0.1, 0.005)

    assert len(found["steps_s"]) > 2
    assert found["cpu_s_per_step"] == pytest.approx(0.005, rel=0.5)


class Prepared:
    """An engine that is never asked for anything else."""

    def prepare(self, watch: object) -> None:
        """Nothing to do."""


FAILS, DOUBTFUL = None, -1.0


@pytest.mark.parametrize(
    ("outcomes", "again", "told"),
    [
        ([1.04], 0, "ring 1.040"),
        ([1.2, 1.02, 1.01], 0, "ring 1.020 (median of 1.200, 1.020, 1.010)"),
        ([0.8, 0.9, 1.3], 0, "ring 0.900 (median of 0.800, 0.900, 1.300)"),
        ([FAILS, 1.0], 1, "ring 1.000 (1 measured again)"),
        ([1.2, FAILS, FAILS, 1.2, FAILS, 1.0], 3, "ring 1.200 (median of 1.200, 1.200, 1.000; 3 measured again)"),
        ([DOUBTFUL, FAILS, 1.0], 2, "ring 1.000 (2 measured again)"),
        ([FAILS, DOUBTFUL, DOUBTFUL], 2, "ring 1.000 (2 measured again; not valid: busy host)"),
        ([DOUBTFUL, DOUBTFUL, FAILS], 2, "ring 1.000 (2 measured again; not valid: busy host)"),
    ],
)
def test_a_collective_out_of_its_gate_is_measured_three_times_and_all_of_it_is_told(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[float | None], again: int, told: str
) -> None:
    rests = _rests(monkeypatch)
    left = iter(outcomes)

    assert str(collectives._measure_until_near(lambda: _trial(next(left)), 0.05)) == told
    assert list(left) == []
    assert rests == [collectives.RETRY_PAUSE_S] * again


def test_who_is_early_and_late_in_turns_goes_at_the_pace_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks of a ring can do so for ever: of either the median step is 10 or 12, and all take 10."""
    rows = [
        {"step": step, "start_s": 10.0 * step + early, "step_s": 10.0 + after - early}
        for step in range(4)
        for early, after in ((2.0 * (step % 2), 2.0 * (1 - step % 2)), (2.0 * (1 - step % 2), 2.0 * (step % 2)))
    ]
    monkeypatch.setattr(training, "read_steps", lambda *_: rows)

    assert training.synchronous_step_s(Path(), None) == 10.0  # type: ignore[arg-type]


def test_a_trial_that_fails_again_and_again_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    _rests(monkeypatch)
    left = iter([FAILS] * 4)

    with pytest.raises(HostError, match="slow links"):
        collectives._measure_until_near(lambda: _trial(next(left)), 0.05)

    assert len(list(left)) == 4 - collectives.MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("need", "wish", "closer", "rate", "dilation"),
    [
        (1.0, 2.0, 16, "1gbit", 32.0),
        (1.0, 32.0, 16, "1gbit", 1e9 / 15e6),
        (1.0, 32.0, 16, "100mbit", 32.0),
        (8.0, 0.0, 16, "100mbit", 8.0),
        (1.0, 0.5, 16, "1gbit", 1e9 / 80e6),
    ],
    ids=[
        "as it wishes",
        "no link is too slow for TCP",
        "what auto takes comes first",
        "what it needs",
        "no link is so fast that streams share it unequally",
    ],
)
def test_rows_of_collectives_dilate_for_messages_as_far_as_links_allow(
    need: float, wish: float, closer: float, rate: str, dilation: float
) -> None:
    demand = TrialHostDemand(
        trial="0", declared=None, needs={"a": need}, wishes={"b": wish}, gradient_cpu_s=0.0, cpu_s=0.0, messages=1
    )

    assert collectives._choose_dilation(demand, closer, rate) == dilation


def test_a_row_tells_how_many_collectives_have_a_trial_that_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepped(_engine: object, kind: str, ranks: int, *_: object) -> collectives.CollectiveMeasurement:
        doubtful = (kind, ranks) == ("ring", 2)
        return collectives.CollectiveMeasurement(kind, ranks, 0.1, (1.0,), reasons="busy host" if doubtful else "")

    _rests(monkeypatch)
    monkeypatch.setattr(collectives, "_measure_collective", stepped)

    lines = collectives.measure_collectives_1gbit(lambda _: "", None, 5)  # type: ignore[arg-type]

    told = [line for line in lines if "verdict" in line.what]
    assert [(line.samples, line.unit, line.is_within_gate) for line in told] == [((1.0,), "of 22", False)] * 2
    assert "ring 1.000 (2 measured again; not valid: busy host)" in lines[0].what


def test_a_trial_is_doubted_as_reports_doubt_it() -> None:
    trial = make_trial({"workers": 2, "worker": {"throughput": "100/s"}})

    with closing(SimulatedEngine()) as engine, training.run_trial(engine, make_trial_plan(trial, engine)) as folder:
        assert read_verdict_reasons(folder) == ""
        (folder / "logs" / "worker-0.log").write_text("")
        assert "worker-0" in read_verdict_reasons(folder)


def _rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the row rests, each time; here it takes no time. Other threads of the tests sleep as they should."""
    rests: list[float] = []
    monkeypatch.setattr(collectives, "time", SimpleNamespace(sleep=rests.append))
    return rests


def _trial(ratio: float | None) -> collectives.CollectiveMeasurement:
    if ratio is FAILS:
        raise HostError("slow links")
    if ratio == DOUBTFUL:
        return collectives.CollectiveMeasurement("ring", 2, 0.1, (1.0,), reasons="busy host")
    return collectives.CollectiveMeasurement("ring", 2, 0.1, (ratio,))
