"""The report states the shares of unequal workers over time, and what their changes have gained."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jsonschema
import pytest

from analysis.checks.training.batch_shares import check_batch_shares
from analysis.checks.verdict import VerdictLevel
from analysis.figures import AnalysedRun
from analysis.figures.batch_shares import draw_batch_shares
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.report.findings.balance_finding import load_balancing_finding
from analysis.report.findings.main_finding import describe_main_finding
from analysis.results.analyse_run import analyse_run

Run = Callable[..., RunLogTables]

HALF_SPEED = {"cluster": {
    "workers": 4,
    "worker": {"throughput": "1000/s", "uplink": "100mbit", "downlink": "100mbit"},
    "server": {"uplink": "100mbit", "downlink": "100mbit"},
    "groups": [{"name": "slow", "ranks": [3], "speed": 0.5}],
}}  # fmt: skip
STRATEGIES = {
    "uniform": {"kind": "all_reduce"},
    "proportional": {"kind": "all_reduce", "balance": {"kind": "proportional"}},
    "dynamic": {"kind": "all_reduce", "balance": {"kind": "dynamic", "period": 4}},
}
BOUND = 60 / 0.5 / (240 / 3.5)  # batches of 240


@pytest.fixture
def unequal_run(run_simulated: Run) -> AnalysedRun:
    tables = run_simulated(STRATEGIES, scenario_overrides=HALF_SPEED)
    return AnalysedRun(*analyse_run(tables.folder))


def test_summary_has_the_shares_of_every_period(unequal_run: AnalysedRun, pytestconfig: pytest.Config) -> None:
    """A reader must see how far shares have moved, and when."""
    uniform, proportional, dynamic = unequal_run.summary.trials

    assert uniform.batch_balance is None
    assert proportional.batch_balance is not None
    assert dynamic.batch_balance is not None
    assert [each.samples for each in proportional.batch_balance.shares] == [[69, 69, 68, 34]]
    assert [(each.first_step, each.samples) for each in dynamic.batch_balance.shares] == [
        (0, [60, 60, 60, 60]),
        (4, [69, 69, 68, 34]),
    ]
    assert [each.slowest_compute_s for each in dynamic.batch_balance.shares] == pytest.approx([0.12, 0.069])
    assert [each.spread for each in dynamic.batch_balance.shares] == pytest.approx([0.5, 1 / 69], rel=1e-3)
    assert dynamic.batch_balance.speedup_bound == pytest.approx(BOUND)
    assert dynamic.batch_balance.share_of_bound == pytest.approx(0.12 / 0.069 / BOUND)
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(asdict(unequal_run.summary))), schema)


def test_figure_states_changes_time_and_bound(unequal_run: AnalysedRun) -> None:
    """The title is a claim: it is about the trial that has changed its shares."""
    figure = draw_batch_shares(unequal_run)

    assert figure is not None
    assert figure.title == (
        "dynamic ×4: after 1 change of the shares, the slowest worker computes 69.0 ms per step; equal "
        "shares would take 120 ms, 1.74 times as long (at most 1.75)"
    )
    counts = figure.data.query("strategy == 'dynamic' and worker == 'worker-3'")
    assert counts[["first_step", "last_step", "samples"]].values.tolist() == [[0, 3, 60], [4, 22, 34]]
    assert set(figure.data["strategy"]) == {"proportional", "dynamic"}


def test_no_gain_is_stated_where_speeds_vary(run_simulated: Run) -> None:
    """The predicted time with equal shares leaves out variation, so the ratio would not be the gain of the shares."""
    variation = {"kind": "lognormal", "sigma": 0.2}
    cluster = HALF_SPEED["cluster"] | {"worker": {"throughput": "1000/s", "variation": variation}}
    tables = run_simulated({"dynamic": STRATEGIES["dynamic"]}, scenario_overrides={"cluster": cluster})
    figure = draw_batch_shares(AnalysedRun(*analyse_run(tables.folder)))

    assert figure is not None
    assert "equal shares" not in figure.title


def test_without_load_balancing_there_is_no_figure(run_simulated: Run) -> None:
    tables = run_simulated({"uniform": STRATEGIES["uniform"]}, scenario_overrides=HALF_SPEED)

    assert draw_batch_shares(AnalysedRun(*analyse_run(tables.folder))) is None


def test_measured_step_time_is_compared_with_the_mean_of_the_plan(unequal_run: AnalysedRun) -> None:
    """The median of a run with few balanced steps would be compared with a mean that includes the first steps."""
    for trial in unequal_run.summary.trials:
        assert trial.typical_of == ("mean" if trial.strategy == "dynamic" else "median")
        assert trial.unpredicted_step_time_share == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    ("counts", "level"), [((7, 3), VerdictLevel.VALID), ((7, 4), VerdictLevel.INVALID), ((6, 3), VerdictLevel.INVALID)]
)
def test_shares_that_do_not_add_up_to_the_batch_are_invalid(
    make_trial: Callable[..., TrialLogTables], steps_line: Callable[..., str], counts: tuple[int, int], level: Any
) -> None:
    """Then samples were used twice, or not at all."""
    logs = {
        f"worker-{rank}": [steps_line([{"samples": 5}, {"samples": count}], f"worker-{rank}")]
        for rank, count in enumerate(counts)
    }
    balance = {"resize_period": 1, "shares": None}

    verdict = check_batch_shares(make_trial(logs, workers=2, batch=10, train_samples=20, balance=balance))

    assert verdict.level == level
    assert (f"step 1 add up to {sum(counts)} samples" in verdict.reason) == (level == VerdictLevel.INVALID)


def test_headline_answers_how_much_faster_unequal_shares_are(unequal_run: AnalysedRun) -> None:
    """Dynamic shares are equal in the first four of 24 steps, so the gain over the whole run is smaller."""
    rates = {trial.strategy: trial.samples_per_second or 0.0 for trial in unequal_run.summary.trials}

    ratios = [rates[name] / rates["uniform"] for name in ("proportional", "dynamic")]
    assert ratios == pytest.approx([1.73, 1.53], abs=0.03)
    assert load_balancing_finding(unequal_run.summary) == (
        f"compared with equal shares (uniform), the samples per second on 4 workers are {ratios[0]:.2f} times as high "
        f"with proportional and {ratios[1]:.2f} times as high with dynamic (1 change of the shares); the speeds allow "
        "at most 1.75 times"
    )
    assert describe_main_finding(unequal_run.summary) == load_balancing_finding(unequal_run.summary)


def test_no_gain_is_stated_without_a_strategy_with_equal_shares(run_simulated: Run) -> None:
    """There is nothing to compare with."""
    tables = run_simulated({"dynamic": STRATEGIES["dynamic"]}, scenario_overrides=HALF_SPEED)
    run = analyse_run(tables.folder)[1]

    assert load_balancing_finding(run) == ""
