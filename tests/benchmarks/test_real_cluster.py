"""The rehearsal of a real cluster: which measured step times it predicts, from what, and what it leaves out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.real_cluster import bench
from benchmarks.real_cluster.comparison import (
    MAX_MEAN_ERRORS,
    ComparedRun,
    compare_runs,
    constant_time_of_exchange_s,
    find_changed_orders,
)
from benchmarks.real_cluster.measured_runs import MeasuredRun, read_measured_runs
from benchmarks.real_cluster.rehearsal import Rehearsal, list_cases
from benchmarks.real_cluster.results_page import RESULTS_PAGE, format_runs_table, render_page, render_real_time_page
from compose.engines.simulated import SimulatedEngine

RUN_COUNT = 32
LONG_PERIODS = {32, 128}  # whose counted steps contain the first exchange of a run
MAX_UTILISATION_ERROR = 0.15  # of runs that count the first exchange


@pytest.fixture(scope="module")
def measured_runs() -> list[MeasuredRun]:
    """All runs of the real cluster."""
    return read_measured_runs()


@pytest.fixture(scope="module")
def rows(measured_runs: list[MeasuredRun]) -> list[ComparedRun]:
    """All runs beside their rehearsal in virtual time."""
    engine = SimulatedEngine()
    try:
        return compare_runs(measured_runs, Rehearsal(engine, measured_runs).rehearse(list_cases(measured_runs)))
    finally:
        engine.close()


def at_rate(rows: Sequence[ComparedRun], bandwidth: str) -> list[ComparedRun]:
    """Runs at one bandwidth."""
    return [row for row in rows if row.measured.bandwidth == bandwidth]


def test_every_run_is_rehearsed_without_a_warning(rows: list[ComparedRun]) -> None:
    """A row that is left out would look like a row that was predicted."""
    assert len(rows) == RUN_COUNT
    assert {row.rehearsed.verdict_reasons for row in rows} == {""}


def test_every_mean_step_at_200_mbit_is_predicted_within_the_aim(rows: list[ComparedRun]) -> None:
    """No value of the prediction was fitted to these times."""
    errors = {row.measured.name: row.mean_error for row in at_rate(rows, "200m")}

    assert {name: error for name, error in errors.items() if abs(error) > MAX_MEAN_ERRORS["200m"]} == {}


def test_mean_steps_at_5_gbit_miss_the_aim_only_where_the_first_exchange_is_counted(rows: list[ComparedRun]) -> None:
    """The miss is stated on the page: the aim is not widened until all rows pass."""
    missed = {row.measured.period_steps for row in at_rate(rows, "5g") if not row.meets_aim}

    assert missed == LONG_PERIODS


def test_typical_steps_at_5_gbit_are_predicted_within_the_aim(rows: list[ComparedRun]) -> None:
    """Without the one long exchange, the remainder has the size that it has with short periods."""
    assert max(abs(row.typical_error) for row in at_rate(rows, "5g")) <= MAX_MEAN_ERRORS["5g"]


def test_the_order_of_the_runs_of_an_algorithm_is_kept(rows: list[ComparedRun]) -> None:
    """A user chooses a period and a bandwidth by their order."""
    assert find_changed_orders(rows) == []


def test_predicted_utilisation_is_near_the_measured_one(rows: list[ComparedRun]) -> None:
    """It follows from the mean step, so it is too high where the first exchange is counted, and nowhere too low."""
    for row in rows:
        error = row.compute_utilisation - row.measured.compute_utilisation
        assert -0.01 <= error <= (0.03 if row.meets_aim else MAX_UTILISATION_ERROR), row.measured.name


def test_measured_exchanges_do_not_enter_the_prediction(measured_runs: list[MeasuredRun]) -> None:
    """With other measured outcomes, the rehearsed scenario is the same: nothing can be fitted to them."""
    other_outcomes = [
        replace(
            run,
            compute_ms_exchange_step=1.0,
            wall_ms_exchange_step=2.0,
            blocked_ms_exchange=3.0,
            mean_wall_ms_step=4.0,
        )
        for run in measured_runs
    ]
    engine = SimulatedEngine()

    for case in list_cases(measured_runs):
        declared = Rehearsal(engine, measured_runs).make_settings(case)
        assert Rehearsal(engine, other_outcomes).make_settings(case) == declared


def test_no_constant_cost_explains_the_measured_exchanges(measured_runs: list[MeasuredRun]) -> None:
    """The page says so: it must not if exchanges at the higher rate become slower."""
    slower = [
        replace(run, blocked_ms_exchange=2 * run.blocked_ms_exchange) if run.bandwidth == "5g" else run
        for run in measured_runs
    ]

    assert constant_time_of_exchange_s(measured_runs) < 0
    assert constant_time_of_exchange_s(slower) > 0


def test_a_changed_order_is_found(rows: list[ComparedRun]) -> None:
    """Otherwise the page would claim that the order is kept whatever was measured."""
    slow, *_ = (row for row in rows if (row.measured.period_steps, row.measured.bandwidth) == (1, "200m"))
    fast, *_ = (row for row in rows if (row.measured.period_steps, row.measured.bandwidth) == (128, "5g"))
    exchanged = [
        replace(slow, measured=replace(slow.measured, mean_wall_ms_step=1.0)),
        replace(fast, measured=replace(fast.measured, mean_wall_ms_step=9.0)),
    ]

    assert len(find_changed_orders(exchanged)) == 1


def test_the_page_is_that_of_the_current_code(rows: list[ComparedRun]) -> None:
    """Virtual time is the same on every host; `make bench-real-cluster ARGS=--write` writes the page."""
    assert RESULTS_PAGE.read_text(encoding="utf-8") == render_page(rows)


def test_the_page_of_engines_in_real_time_has_machine_and_dilation(rows: list[ComparedRun]) -> None:
    """Its times depend on both."""
    text = render_real_time_page(rows[:2], "docker", "two cores")

    assert "Measured on two cores." in text
    assert "diloco:1:200m: dilation 1, verdict valid" in text
    assert list(format_runs_table(rows[:2]))[-1] in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "diloco:7:5g"], "unknown case diloco:7:5g; cases are diloco:1:200m, "),
        (["--cases", "diloco:8:5g", "--write"], "remove --cases"),
        (["--engine", "local", "--write"], "needs the name of this machine"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rehearsal in containers takes minutes."""
    assert bench.main(arguments) == bench.EXIT_USAGE
    assert message in capsys.readouterr().err
