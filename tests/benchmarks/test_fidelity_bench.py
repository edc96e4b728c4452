"""The fidelity benchmark: its gates, its table, its page, and which rows a call measures."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fidelity import bench, results_page
from benchmarks.fidelity.catalogue import ContainerRow
from benchmarks.fidelity.node_program import run_equal_steps
from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement, RowOutcome
from compose.calibration.capacity import HostFingerprint
from services.runtime.stream_measurement import arrival_rate_bytes_per_s
from services.schema.errors import HostError

HERE = MeasurementOrigin(
    commit="abcdef0", date="2026-01-01T00:00+00:00", host=HostFingerprint(cpu="a", cores=2, kernel="b", engine="c")
)
DIRTY = HERE.model_copy(update={"commit": "abcdef0+dirty"})


class PreparedEngine:
    """An engine of which the benchmark uses only `prepare`."""

    def prepare(self, preparation_observer: object) -> None:
        """Prepare nothing."""


class BenchRunner:
    """Runs the benchmark with fake rows on a fake host; `measured` lists the rows that it measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.measured: list[str] = []
        self.state, self.page = folder / "state.json", folder / "fidelity.md"
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(bench, "DockerEngine", PreparedEngine)
        monkeypatch.setattr(bench, "RESULTS_PAGE", self.page)
        self.set_origin(HERE)

    def set_origin(self, origin: MeasurementOrigin) -> None:
        """Let all measurements from now on have this origin."""
        self._monkeypatch.setattr(bench, "current_origin", lambda _: origin)

    def save(self, outcomes: Sequence[RowOutcome]) -> None:
        """Save outcomes as those of an earlier call."""
        results_page.save_outcomes(self.state, outcomes)

    def run(self, rows: dict[str, Callable[[], list[FidelityMeasurement]]], *arguments: str) -> int:
        """Run the benchmark with these rows and return its exit code."""
        bench_rows = {name: ContainerRow(self._record(name, measure), 60) for name, measure in rows.items()}
        self._monkeypatch.setattr(bench, "BENCH_ROWS", bench_rows)
        self._monkeypatch.setattr("sys.argv", ["fidelity", "--rows", "", "--state", str(self.state), *arguments])
        return bench.main()

    def _record(self, name: str, measure: Callable[[], list[FidelityMeasurement]]) -> Callable[..., Any]:
        return lambda *_: (self.measured.append(name), measure())[1]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BenchRunner:
    return BenchRunner(monkeypatch, tmp_path)


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
        (make_measurement(100.0, 100.0, median_off=0.01).model_copy(update={"trials": 3, "failed_trials": 1}), False),
        (make_measurement(median_off=0.01).model_copy(update={"trials": 3, "failed_trials": 3}), False),
    ],
)
def test_a_measurement_is_compared_with_its_gate(measurement: FidelityMeasurement, ok: bool) -> None:
    assert measurement.is_within_gate is ok


def measure_well() -> list[FidelityMeasurement]:
    """Measure a row that is within its gate."""
    return [make_measurement(100.0, median_off=0.01)]


def measure_exactly_at_the_limit() -> list[FidelityMeasurement]:
    """Measure a row whose error equals its limit, except for the rounding of floats."""
    return [make_measurement(100.0 * 1.05, median_off=0.05)]


def make_outcome(row: str, measured_value: float = 100.0, failed: str = "", **origin_changes: Any) -> RowOutcome:
    """Return the earlier outcome of a row."""
    return RowOutcome(
        row=row,
        origin=HERE.model_copy(update=origin_changes),
        lines=() if failed else (make_measurement(measured_value, median_off=0.01),),
        failed=failed,
    )


def saved_rows(path: Path) -> list[str]:
    """Return the names of the rows in a file of outcomes."""
    return [outcome["row"] for outcome in json.loads(path.read_text())] if path.exists() else []


def test_a_failing_row_shows_its_reason_and_the_next_row_is_measured(
    runner: BenchRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour of measurements must not end because of one broken row."""

    def fail() -> list[FidelityMeasurement]:
        raise RuntimeError("no such\nmechanism")

    code = runner.run({"broken": fail, "good": measure_well})
    printed = capsys.readouterr().out

    assert code == 1
    assert "| FAILED | broken |  | RuntimeError: no such mechanism |  |  |  |  |" in printed
    assert "| ok | a flow | 100 Mbit/s | 100 (100 - 100) Mbit/s | +0.00% | median ±1% | 1 | – |" in printed


EARLIER_OUTCOMES = (
    *(make_outcome("done"), make_outcome("failed", failed="engine away"), make_outcome("missed", 150.0)),
    *(make_outcome("older", commit="1234567"), make_outcome("dirty", commit="abcdef0+dirty")),
    make_outcome("elsewhere", host=HERE.host.model_copy(update={"cores": 64})),
)
ROWS = {outcome.row: measure_well for outcome in EARLIER_OUTCOMES}


@pytest.mark.parametrize(
    ("arguments", "measured_rows"),
    [
        ((), ["older", "dirty", "elsewhere"]),
        (("--discard",), list(ROWS)),
        (("--rows", "done,failed,older"), ["done", "failed", "older"]),
        (("--rows", "done,failed,older", "--write", "mine"), ["older"]),
    ],
    ids=["the rest of a run", "a new run", "only printed", "for the page"],
)
def test_a_row_is_measured_once_by_a_commit(
    runner: BenchRunner, arguments: tuple[str, ...], measured_rows: list[str]
) -> None:
    """Measuring the rows again that failed or missed their gates would repeat until the table looks good."""
    runner.save(EARLIER_OUTCOMES)

    runner.run(ROWS, *arguments)

    assert runner.measured == measured_rows


def test_a_selected_row_is_only_printed(runner: BenchRunner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.save([make_outcome("missed", 150.0)])
    before = runner.state.read_text()

    assert runner.run(ROWS, "--rows", "missed") == 0

    assert "| ok | a flow |" in capsys.readouterr().out
    assert runner.state.read_text() == before
    assert not runner.page.exists()


def test_the_saved_rows_never_mix_commits_or_hosts(runner: BenchRunner) -> None:
    runner.save(EARLIER_OUTCOMES)

    runner.run({"done": measure_well, "new": measure_well})

    assert saved_rows(runner.state) == ["done", "failed", "missed", "new"]


def test_the_page_has_only_rows_of_one_commit_and_lists_the_others(runner: BenchRunner) -> None:
    """The page is not completed from the page before it: a table that mixes commits describes none of them."""
    results_page.save_outcomes(runner.page.with_suffix(".json"), EARLIER_OUTCOMES)

    runner.run(ROWS, "--rows", "done", "--write", "mine")

    text = runner.page.read_text()
    assert saved_rows(runner.page.with_suffix(".json")) == ["done"]
    assert (
        "Machine: mine (a, 2 cores, Linux b, Docker c). All rows were measured by commit abcdef0. The rows started "
        "from 2026-01-01T00:00+00:00 to 2026-01-01T00:00+00:00 (UTC); measuring took 0 minutes."
    ) in text
    assert text.endswith("\nNot measured: failed, missed, older, dirty, elsewhere.\n")


def test_a_checkout_with_changes_saves_and_writes_nothing(
    runner: BenchRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """No commit contains the code that such a row measured."""
    runner.save(EARLIER_OUTCOMES)
    before = runner.state.read_text()
    runner.set_origin(DIRTY)

    assert runner.run({"done": measure_well}) == 0
    assert runner.run({"done": measure_well}, "--write", "mine", "--discard") == 2

    assert "--write needs a commit; this checkout is abcdef0+dirty" in capsys.readouterr().err
    assert runner.measured == ["done"]
    assert runner.state.read_text() == before
    assert not runner.page.exists()


def test_a_commit_during_the_run_ends_it(runner: BenchRunner, capsys: pytest.CaptureFixture[str]) -> None:
    def commit() -> list[FidelityMeasurement]:
        runner.set_origin(HERE.model_copy(update={"commit": "1234567"}))
        return measure_well()

    assert runner.run({"first": measure_well, "second": commit, "third": measure_well}) == 2

    assert saved_rows(runner.state) == ["first"]
    assert "(from abcdef0 to 1234567)" in capsys.readouterr().err


def test_the_run_starts_with_its_estimated_duration(runner: BenchRunner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.save([make_outcome("done")])

    runner.run({"done": measure_well, "a": measure_well, "b": measure_well})

    assert capsys.readouterr().err.startswith("2 rows, about 2 minutes\n")


def test_a_row_whose_duration_cannot_be_estimated_fails_alone(
    runner: BenchRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the host's capacity can reject the trials of one row."""

    def reject(*_: object) -> float:
        raise HostError("slow links")

    monkeypatch.setattr(ContainerRow, "estimate_wall_s", reject)

    assert runner.run({"a": measure_well}) == 0


def test_trials_that_are_not_valid_are_counted_in_the_table(
    runner: BenchRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    defects = {"trials": 3, "failed_trials": 1, "defects": ("busy host", "failed: slow links")}
    all_failed = {"trials": 2, "failed_trials": 2, "defects": ("failed: slow links", "failed: slow links")}

    runner.run(
        {
            "some": lambda: [make_measurement(99.0, 101.0, median_off=0.01).model_copy(update=defects)],
            "all": lambda: [make_measurement(median_off=0.01).model_copy(update=all_failed)],
        }
    )

    printed = capsys.readouterr().out
    assert (
        "| NOT OK | a flow | 100 Mbit/s | 100 (99 - 101) Mbit/s | +0.00% | median ±1% | 2 "
        "| 1 of 3 valid: busy host; failed: slow links |"
    ) in printed
    assert "| NOT OK | a flow | 100 Mbit/s | – | – | median ±1% | 0 | 0 of 2 valid: 2x failed: slow links |" in printed


def test_a_miss_is_visible_in_the_printed_digits(runner: BenchRunner, capsys: pytest.CaptureFixture[str]) -> None:
    """Four digits would show 105, which is within 5 %."""
    runner.run({"missed": lambda: [make_measurement(105.004, median_off=0.05)], "met": measure_exactly_at_the_limit})

    printed = capsys.readouterr().out
    assert "| NOT OK | a flow | 100 Mbit/s | 105.004 (105.004 - 105.004) Mbit/s | +5.0040% | median ±5% |" in printed
    assert "| ok | a flow | 100 Mbit/s | 105 (105 - 105) Mbit/s | +5.00% | median ±5% |" in printed


def test_absolute_limits_have_the_unit_of_the_measurement() -> None:
    assert FidelityGate(median_off=0.01, median_off_by=0.5).format_limits("ms") == "median ±1%, median ±0.5 ms"
    assert FidelityGate(at_most=50.0).format_limits("ms") == "at most 50 ms"
    assert FidelityGate(at_most=1.6).format_limits("") == "at most 1.6"


def test_a_ratio_has_no_unit(runner: BenchRunner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.run({"ratio": lambda: [make_measurement(101.0).model_copy(update={"unit": ""})]})

    assert "|  | a flow | 100 | 101 (101 - 101) | +1.00% | – |" in capsys.readouterr().out


def test_the_results_page_is_a_file_of_the_documentation(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.rootpath / "docs" / "results" / "fidelity.md" == bench.RESULTS_PAGE
    assert bench.RESULTS_PAGE.is_file()


def test_a_measurement_without_a_gate_has_no_mark(runner: BenchRunner, capsys: pytest.CaptureFixture[str]) -> None:
    """A mark would suggest that a promise was kept."""
    runner.run({"shown": lambda: [make_measurement(200.0)]})

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
