"""Accelerator-hours, energy and cost: the arithmetic, and what a report does not say without declarations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from analysis.metrics.running_costs import measure_running_costs
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.report.report import write_report
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.results.analyse_run import analyse_run

POWER = {"idle": "100W", "busy": "500W"}
RING = {"kind": "all_reduce", "collective": {"kind": "ring"}}
SERVER = {"kind": "parameter_server"}
MODEL_TEXT = "Energy is a model, not a measurement"


@pytest.fixture
def trial_of_an_hour(make_trial: Callable[..., TrialLogTables], line: Any, steps_line: Any, stop_line: Any) -> Any:
    """Return a trial of 3,600 s: worker-0 computes for 1,800 s, worker-1 for 900 s, server-0 updates for 360 s."""

    def make(ends: bool = True, **declared: dict[str, Any]) -> TrialLogTables:
        roles = {"worker-0": "worker", "worker-1": "worker", "server-0": "ps_shard"}
        nodes = [{"name": "coordinator", "role": "coordinator"}]
        nodes += [{"name": name, "role": role, **declared.get(role, {})} for name, role in roles.items()]
        logs = {
            "coordinator": [line("run_start"), *([line("run_stop", time_s=3600.0)] if ends else [])],
            "worker-0": [steps_line([{"compute_s": 600.0}] * 3, "worker-0"), stop_line("worker-0")],
            "worker-1": [steps_line([{"compute_s": 300.0}] * 3, "worker-1"), stop_line("worker-1")],
            "server-0": [stop_line("server-0", update_seconds=360.0)],
        }
        return make_trial(logs, workers=2, servers=1, nodes=nodes, strategy=SERVER)

    return make


def test_energy_is_idle_power_and_the_difference_to_busy_for_the_share_of_computing(trial_of_an_hour: Any) -> None:
    """Shares of 1/2, 1/4 and 1/10 of an hour: 300 W, 200 W and 20 + 8 W."""
    declared = {"worker": {"watts": POWER}, "ps_shard": {"watts": {"idle": "20W", "busy": "100W"}}}

    costs = measure_running_costs(trial_of_an_hour(**declared))

    assert costs.energy_joules == pytest.approx(3600 * (300 + 200 + 28))
    assert (costs.energy_reason, costs.cost, costs.cost_reason) == ("", None, "not declared")


def test_cost_is_the_sum_of_all_prices_times_the_hours(trial_of_an_hour: Any) -> None:
    """Servers are paid for, but have no accelerators: two workers for an hour are two accelerator-hours."""
    costs = measure_running_costs(trial_of_an_hour(worker={"price": "2.5 USD/h"}, ps_shard={"price": "0.5 USD/h"}))

    assert (costs.cost, costs.currency, costs.accelerator_hours) == (pytest.approx(5.5), "USD", pytest.approx(2.0))
    assert costs.energy_reason == "not declared"


def test_a_node_without_a_declaration_leaves_energy_and_cost_unknown(trial_of_an_hour: Any) -> None:
    """A sum without the servers would make strategies with servers look cheap."""
    costs = measure_running_costs(trial_of_an_hour(worker={"price": "2.5 USD/h", "watts": POWER}))

    assert (costs.energy_joules, costs.energy_reason) == (None, "server-0 declares no watts")
    assert (costs.cost, costs.currency, costs.cost_reason) == (None, None, "server-0 declares no price")


def test_without_an_end_of_training_nothing_is_known(trial_of_an_hour: Any) -> None:
    """The duration of an aborted trial is not that of a training."""
    keys = {"price": "2.5 USD/h", "watts": POWER}
    costs = measure_running_costs(trial_of_an_hour(ends=False, worker=keys, ps_shard=keys))

    assert (costs.accelerator_hours, costs.energy_joules, costs.cost) == (None, None, None)
    assert (costs.energy_reason, costs.cost_reason) == ("training did not end", "training did not end")


def test_servers_log_the_time_of_their_updates(run_simulated: Callable[..., RunLogTables]) -> None:
    """Without it, the share in which a server computes would be unknown; in virtual time updates take no time."""
    run = run_simulated({"ps": SERVER}, workload={"epochs": 1})

    assert run.trials[0].nodes.set_index("node").loc["server-0", "update_seconds"] == 0


@pytest.mark.parametrize("is_declared", [True, False])
def test_the_report_states_costs_and_their_model_only_where_declared(
    run_simulated: Callable[..., RunLogTables], tmp_path: Path, is_declared: bool, pytestconfig: pytest.Config
) -> None:
    """Nothing is assumed: without declarations there is no number, no currency, and no claim about a model."""
    keys = {"watts": POWER, "price": "3.6 EUR/h"} if is_declared else {}
    run_simulated({"ring": RING}, workload={"epochs": 2}, **keys)

    text = write_report(tmp_path).read_text()
    _, summary = analyse_run(RunFolder(tmp_path))
    (row,) = make_strategy_table(summary).rows
    (trial,) = summary.trials

    assert float(row.accelerator_hours) == pytest.approx(4 * trial.seconds / 3600, rel=0.01)
    assert (MODEL_TEXT in text) is is_declared
    assert ("<h2>Energy and cost</h2>" in text) is is_declared
    if not is_declared:
        assert (row.energy, row.cost) == ("not declared", "not declared")
        assert (trial.energy_joules, trial.cost, trial.currency) == (None, None, None)
        return
    busy_s = sum(4 * [trial.phase_seconds["compute"] * trial.steps]) if trial.phase_seconds else 0.0
    assert trial.energy_joules == pytest.approx(4 * 100 * trial.seconds + 400 * busy_s, rel=0.02)
    assert trial.cost == pytest.approx(4 * 3.6 * trial.seconds / 3600)
    assert row.cost.endswith(" EUR")
    assert row.energy.endswith("Wh")
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(RunFolder(tmp_path).summary_path.read_text()))
