"""The benchmark of the overlap of exchange and compute: its limits, its page, and that both sides are comparable."""

from collections.abc import Sequence

import pytest

from benchmarks.commands.cases import TrialRow
from benchmarks.commands.measurements import RowResult, measure_trial_rows
from benchmarks.overlap import __main__ as bench
from benchmarks.overlap.cases import VIRTUAL_TIME_ENGINE, all_rows, ddp_row, overlap_bound_s
from benchmarks.overlap.results_page import RESULTS_PAGE, format_page, format_table
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario


@pytest.fixture(scope="module")
def results() -> list[RowResult]:
    """All rows in virtual time."""
    return measure_trial_rows(list(all_rows(VIRTUAL_TIME_ENGINE)), 1)


def plan_of(row: TrialRow) -> Plan:
    """Return the plan of the last trial of a row, in virtual time."""
    (trial,) = Scenario.decode(row.scenarios[-1]).trials()
    return make_plan(trial, "benchmark", "simulated", DummyAddresses())


def test_every_limit_is_met_in_virtual_time(results: list[RowResult]) -> None:
    """Without noise of a host, a missed limit is a fault of the overlap."""
    assert [result.row.description for result in results if not result.meets_limit] == []
    assert all(result.defects == [] for result in results)


def test_the_page_has_the_rows_of_the_current_code(results: list[RowResult]) -> None:
    """Virtual time is the same on every host; `make bench-overlap ARGS=--write` writes the page."""
    page = RESULTS_PAGE.read_text(encoding="utf-8")

    assert set(format_table(results).splitlines()) <= set(page.splitlines())


def test_the_exchange_takes_as_long_as_the_backward_pass() -> None:
    """On faster or slower links, one of both would hide a defect of the overlap."""
    for row in (row for row in all_rows(VIRTUAL_TIME_ENGINE) if row.group == "bound"):
        plan = plan_of(row)
        after_backward = plan_of_strategy(row, {"kind": "all_reduce"})
        assert after_backward.predicted.exchange_s == pytest.approx(plan.predicted.compute_s * 2 / 3, rel=0.03)


def test_the_bound_is_the_closed_form_of_equal_layers() -> None:
    """The bound of the benchmark must not be looser than what is predicted for its model."""
    for row in (row for row in all_rows(VIRTUAL_TIME_ENGINE) if row.group == "bound"):
        plan = plan_of(row)
        assert overlap_bound_s(plan) == pytest.approx(plan.predicted.step_s, rel=0.02)
        assert overlap_bound_s(plan) < 0.95 * plan_of_strategy(row, {"kind": "all_reduce"}).predicted.step_s


def plan_of_strategy(row: TrialRow, strategy: dict[str, str]) -> Plan:
    """Return the plan of a row's trial with another strategy."""
    (trial,) = Scenario.decode(row.scenarios[-1] | {"strategies": {"it": strategy}}).trials()
    return make_plan(trial, "benchmark", "simulated", DummyAddresses())


def test_both_frameworks_have_the_same_cluster_and_batch() -> None:
    """Otherwise the ratio would compare two clusters."""
    ddp, ensayo = ddp_row().scenarios

    for key in ("cluster", "dilation", "attempts", "baseline"):
        assert ddp[key] == ensayo[key]
    assert ddp["workload"]["batch_per_worker"] * ddp["cluster"]["workers"] == ensayo["workload"]["batch"]
    steps = int(ddp["workload"]["command"].split()[-2])
    assert steps * ensayo["workload"]["batch"] == 0.8 * ensayo["workload"]["dataset"]["samples"]


def test_a_missed_limit_is_marked_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A benchmark that always ends well shows nothing."""

    def measure_slow_steps(rows: Sequence[TrialRow], rounds: int) -> list[RowResult]:
        return [RowResult(row, [1.06] * rounds) for row in rows]

    monkeypatch.setattr(bench, "measure_trial_rows", measure_slow_steps)

    assert bench.main([]) == 1
    assert "≤ 1.05 (not met)" in capsys.readouterr().out


def test_rows_that_were_not_measured_are_on_the_page(results: list[RowResult]) -> None:
    """A page without them would look complete."""
    page = format_page(results, "docker", "")

    assert page.count("| not measured |") == len(list(all_rows("docker")))
    assert "Rows in containers have not been measured yet." in page
    assert "not measured" not in format_page(results, "", "two cores")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "docker", "--write"], "needs the name of this machine"),
        (["--engine", "local", "--write", "mine"], "remove --write"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A measurement in containers takes minutes."""
    assert bench.main(arguments) == bench.EXIT_USAGE
    assert message in capsys.readouterr().err
