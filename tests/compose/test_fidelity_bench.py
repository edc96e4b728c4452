"""The fidelity benchmark: its gates, its table, and failing rows that do not stop the other rows."""

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
def run_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs the benchmark with fake rows on a fake host, given earlier outcomes."""

    def run(rows: dict[str, Any], *arguments: str, earlier_outcomes: Sequence[RowOutcome] = ()) -> int:
        state = tmp_path / "state.json"
        state.write_text(json.dumps([row_outcome.model_dump(mode="json") for row_outcome in earlier_outcomes]))
        monkeypatch.setattr(bench, "BENCH_ROWS", rows)
        monkeypatch.setattr(bench, "VERDICT_ROWS", {})
        monkeypatch.setattr(bench, "DockerEngine", PreparedEngine)
        monkeypatch.setattr(bench, "current_origin", lambda _: HERE)
        monkeypatch.setattr("sys.argv", ["fidelity", "--rows", "", "--state", str(state), *arguments])
        return bench.main(lambda _: "")

    return run


def make_measurement(*samples: float, **gate_limits: float) -> FidelityMeasurement:
    """Return a measurement whose declared value is 100."""
    return FidelityMeasurement(
        what="a flow", unit="Mbit/s", declared=100.0, samples=samples, gate=FidelityGate(**gate_limits)
    )


@pytest.mark.parametrize(
    ("measurement", "ok"),
    [
        (make_measurement(99.0, 101.0, 130.0, median_off=0.01), True),
        (make_measurement(98.9, 98.9, 98.9, median_off=0.01), False),
        (make_measurement(99.0, 100.0, 106.0, median_off=0.01, each_off=0.05), False),
        (make_measurement(100.4, median_off_by=0.5), True),
        (make_measurement(100.6, median_off_by=0.5), False),
        (make_measurement(30.0, at_most=30.0), True),
        (make_measurement(31.0, at_most=30.0), False),
    ],
)
def test_a_measurement_is_compared_with_its_gate(measurement: FidelityMeasurement, ok: bool) -> None:
    assert measurement.is_within_gate is ok


def test_a_failing_row_shows_its_reason_and_the_next_row_is_measured(
    run_bench: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour of measurements must not end because of one broken row."""

    def failing_row(*_: object) -> list[FidelityMeasurement]:
        raise RuntimeError("no such\nmechanism")

    code = run_bench({"broken": failing_row, "good": lambda *_: [make_measurement(100.0, median_off=0.01)]})
    printed = capsys.readouterr().out

    assert code == 1
    assert "| FAILED | broken |  | RuntimeError: no such mechanism |  |  | abcdef0, 2026-01-01 |" in printed
    assert (
        "| ok | a flow | 100 Mbit/s | 100 (100 - 100) Mbit/s | +0.00% | median ±1% | abcdef0, 2026-01-01 |" in printed
    )


def make_outcome(row: str, measured_value: float = 100.0, failed: str = "", **origin_changes: Any) -> RowOutcome:
    """Return the earlier outcome of a row."""
    return RowOutcome(
        row=row,
        origin=HERE.model_copy(update=origin_changes),
        lines=(make_measurement(measured_value, median_off=0.01),),
        failed=failed,
    )


EARLIER_OUTCOMES = (
    *(make_outcome("done"), make_outcome("failed", failed="engine away"), make_outcome("missed", 150.0)),
    *(make_outcome("older", commit="1234567"), make_outcome("dirty", commit="abcdef0+dirty")),
    make_outcome("elsewhere", host=HERE.host.model_copy(update={"cores": 64})),
)


@pytest.mark.parametrize(
    ("arguments", "measured_rows"),
    [
        ((), ["failed", "elsewhere"]),
        (("--rows", "done,failed,missed,older,dirty"), ["failed", "missed", "older", "dirty"]),
        (("--rows", "done", "--again"), ["done"]),
    ],
)
def test_rows_are_measured_again_on_request_or_without_an_outcome_on_this_host(
    run_bench: Callable[..., int], arguments: tuple[str, ...], measured_rows: list[str]
) -> None:
    """A table may be completed over several days; rows of other hosts never count."""
    actual: list[str] = []
    rows = {
        earlier_outcome.row: lambda *_, name=earlier_outcome.row: (
            actual.append(name) or [make_measurement(100.0, median_off=0.01)]
        )
        for earlier_outcome in EARLIER_OUTCOMES
    }

    run_bench(rows, *arguments, earlier_outcomes=EARLIER_OUTCOMES)

    assert actual == measured_rows


def test_the_table_names_the_rows_that_other_code_measured(
    run_bench: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that mixes two commits describes neither of them."""
    run_bench({"older": None}, earlier_outcomes=[make_outcome("older", commit="1234567")])

    printed = capsys.readouterr().out

    assert "1234567, 2026-01-01 |" in printed
    assert "Not measured by the code of abcdef0: older;" in printed


def test_a_failing_row_does_not_replace_a_finished_one(run_bench: Callable[..., int], tmp_path: Path) -> None:
    """Measuring the finished row may have taken half an hour."""
    rows = dict.fromkeys(("done", "failed"), lambda *_: (_ for _ in ()).throw(HostError("slow links")))

    assert (
        run_bench(
            rows, "--again", earlier_outcomes=[make_outcome("done"), make_outcome("failed", failed="engine away")]
        )
        == 1
    )

    stored_failures = {row["row"]: row["failed"] for row in json.loads((tmp_path / "state.json").read_text())}
    assert stored_failures == {"done": "", "failed": "HostError: slow links"}


def test_a_page_keeps_the_finished_rows_of_another_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise a new kernel would empty the page, and a failing row would replace one that succeeded."""
    page = tmp_path / "fidelity.md"
    other_origin = MeasurementOrigin(
        commit="1234567", date=HERE.date, host=HERE.host.model_copy(update={"kernel": "old"})
    )
    earlier_outcomes = [
        RowOutcome(row=row, origin=other_origin, lines=(make_measurement(99.9, median_off=0.01),))
        for row in ("kept", "done", "failed")
    ]
    page.with_suffix(".json").write_text(
        json.dumps([row_outcome.model_dump(mode="json") for row_outcome in earlier_outcomes])
    )
    monkeypatch.setattr(bench, "BENCH_ROWS", [row_outcome.row for row_outcome in earlier_outcomes])

    bench.write_page(page, "mine", [make_outcome("done"), make_outcome("failed", failed="engine away")], HERE)

    text, stored_outcomes = page.read_text(), json.loads(page.with_suffix(".json").read_text())
    assert [(row_outcome["row"], row_outcome["origin"]["commit"]) for row_outcome in stored_outcomes] == [
        ("kept", "1234567"),
        ("done", "abcdef0"),
        ("failed", "1234567"),
    ]
    assert text.startswith("# What `make bench-fidelity` printed\n\nMachine: mine (a, 2 cores, Linux b, Docker c).")
    assert text.endswith("Measured on another host (a, 2 cores, Linux old, Docker c): kept, failed.\n")
    assert "FAILED" not in text


def test_the_results_page_is_a_file_of_the_documentation(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.rootpath / "docs" / "results" / "fidelity.md" == bench.RESULTS_PAGE
    assert bench.RESULTS_PAGE.is_file()


def test_a_measurement_without_a_gate_has_no_mark(
    run_bench: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A mark would suggest that a promise was kept."""
    run_bench({"shown": lambda *_: [make_measurement(200.0)]})

    assert "|  | a flow | 100 Mbit/s | 200 (200 - 200) Mbit/s | +100.00% | – |" in capsys.readouterr().out


def test_an_arrival_rate_counts_the_bytes_after_the_first_arrival() -> None:
    """The time before the first arrival was not measured."""
    assert arrival_rate_bytes_per_s([(1.0, 999), (2.0, 50), (3.0, 50)]) == 50.0
    assert arrival_rate_bytes_per_s([(1.0, 999)]) == 0.0


@pytest.mark.wall_clock
def test_steps_of_the_node_program_need_equal_cpu_time() -> None:

    measured_steps = run_equal_steps(time.monotonic() + 0.1, 0.005)

    assert len(measured_steps["steps_s"]) > 2
    assert measured_steps["cpu_s_per_step"] == pytest.approx(0.005, rel=0.5)


class PreparedEngine:
    """An engine of which the benchmark uses only `prepare`."""

    def prepare(self, preparation_observer: object) -> None:
        """Prepare nothing."""


FAILS, NOT_VALID = None, -1.0


@pytest.mark.parametrize(
    ("outcomes", "repeat_count", "shown"),
    [
        ([1.04], 0, "ring 1.040"),
        ([1.2, 1.02, 1.01], 0, "ring 1.020 (median of 1.200, 1.020, 1.010)"),
        ([0.8, 0.9, 1.3], 0, "ring 0.900 (median of 0.800, 0.900, 1.300)"),
        ([FAILS, 1.0], 1, "ring 1.000 (1 measured again)"),
        ([1.2, FAILS, FAILS, 1.2, FAILS, 1.0], 3, "ring 1.200 (median of 1.200, 1.200, 1.000; 3 measured again)"),
        ([NOT_VALID, FAILS, 1.0], 2, "ring 1.000 (2 measured again)"),
        ([FAILS, NOT_VALID, NOT_VALID], 2, "ring 1.000 (2 measured again; not valid: busy host)"),
        ([NOT_VALID, NOT_VALID, FAILS], 2, "ring 1.000 (2 measured again; not valid: busy host)"),
    ],
)
def test_a_collective_outside_its_gate_is_measured_three_times_and_all_are_shown(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[float | None], repeat_count: int, shown: str
) -> None:
    pauses_s = _record_pauses(monkeypatch)
    remaining_outcomes = iter(outcomes)

    assert str(collectives._measure_until_near(lambda: _measurement_of(next(remaining_outcomes)), 0.05)) == shown
    assert list(remaining_outcomes) == []
    assert pauses_s == [collectives.RETRY_PAUSE_S] * repeat_count


def test_ranks_that_alternate_between_early_and_late_have_the_common_step_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks of a ring can alternate for ever: the median step of each is 10 or 12 s, but all take 10 s per step."""
    rows = [
        {"step": step, "start_s": 10.0 * step + early, "step_s": 10.0 + after - early}
        for step in range(4)
        for early, after in ((2.0 * (step % 2), 2.0 * (1 - step % 2)), (2.0 * (1 - step % 2), 2.0 * (step % 2)))
    ]
    monkeypatch.setattr(training, "read_steps", lambda *_: rows)

    assert training.synchronous_step_s(Path(), None) == 10.0  # type: ignore[arg-type]


def test_a_trial_that_fails_in_every_attempt_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    _record_pauses(monkeypatch)
    remaining_outcomes = iter([FAILS] * 4)

    with pytest.raises(HostError, match="slow links"):
        collectives._measure_until_near(lambda: _measurement_of(next(remaining_outcomes)), 0.05)

    assert len(list(remaining_outcomes)) == 4 - collectives.MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("needed_dilation", "wished_dilation", "overhead_factor", "link_rate", "dilation"),
    [
        (1.0, 2.0, 16, "1gbit", 32.0),
        (1.0, 32.0, 16, "1gbit", 1e9 / 15e6),
        (1.0, 32.0, 16, "100mbit", 32.0),
        (8.0, 0.0, 16, "100mbit", 8.0),
        (1.0, 0.5, 16, "1gbit", 1e9 / 80e6),
    ],
    ids=[
        "wished dilation",
        "slower links would be too slow for TCP",
        "auto needs more than the link allows",
        "needed dilation",
        "faster links would be shared unequally",
    ],
)
def test_collectives_are_dilated_for_their_messages_as_far_as_links_allow(
    needed_dilation: float, wished_dilation: float, overhead_factor: float, link_rate: str, dilation: float
) -> None:
    demand = TrialHostDemand(
        trial="0",
        declared=None,
        needs={"a": needed_dilation},
        wishes={"b": wished_dilation},
        gradient_cpu_s=0.0,
        cpu_s=0.0,
        messages=1,
    )

    assert collectives._choose_dilation(demand, overhead_factor, link_rate) == dilation


def test_a_row_counts_the_collectives_whose_trial_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_measurement(_engine: object, kind: str, ranks: int, *_: object) -> collectives.CollectiveMeasurement:
        is_not_valid = (kind, ranks) == ("ring", 2)
        return collectives.CollectiveMeasurement(kind, ranks, 0.1, (1.0,), reasons="busy host" if is_not_valid else "")

    _record_pauses(monkeypatch)
    monkeypatch.setattr(collectives, "_measure_collective", fake_measurement)

    measurements = collectives.measure_collectives_1gbit(lambda _: "", None, 5)  # type: ignore[arg-type]

    verdict_lines = [verdict_line for verdict_line in measurements if "verdict" in verdict_line.what]
    assert [
        (verdict_line.samples, verdict_line.unit, verdict_line.is_within_gate) for verdict_line in verdict_lines
    ] == [((1.0,), "of 22", False)] * 2
    assert "ring 1.000 (2 measured again; not valid: busy host)" in measurements[0].what


def test_the_benchmark_reads_the_same_verdict_reasons_as_reports() -> None:
    trial = make_trial({"workers": 2, "worker": {"throughput": "100/s"}})

    with closing(SimulatedEngine()) as engine, training.run_trial(engine, make_trial_plan(trial, engine)) as folder:
        assert read_verdict_reasons(folder) == ""
        (folder / "logs" / "worker-0.log").write_text("")
        assert "worker-0" in read_verdict_reasons(folder)


def _record_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between measurements instead of waiting; other threads of the tests still sleep."""
    pauses_s: list[float] = []
    monkeypatch.setattr(collectives, "time", SimpleNamespace(sleep=pauses_s.append))
    return pauses_s


def _measurement_of(ratio: float | None) -> collectives.CollectiveMeasurement:
    if ratio is FAILS:
        raise HostError("slow links")
    if ratio == NOT_VALID:
        return collectives.CollectiveMeasurement("ring", 2, 0.1, (1.0,), reasons="busy host")
    return collectives.CollectiveMeasurement("ring", 2, 0.1, (ratio,))
