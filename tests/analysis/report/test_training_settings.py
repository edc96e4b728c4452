"""Training settings in the report: the learning rates that trials have used, and why they differ."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.reading.run_table import RunLogTables
from analysis.report.report import write_report
from analysis.report.tables.training_settings import describe_component, make_training_settings_table

RING = {"kind": "all_reduce"}
ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
SWITCH = {"kind": "strategy_switch", "before": RING, "after": ASP, "when": {"kind": "at", "epoch": 1}}
WORKLOAD = {
    "epochs": 2,
    "batch": 120,
    "optimiser": {"kind": "adamw", "rate": 0.01, "weight_decay": 0.1},
    "schedule": {"kind": "cosine", "warmup_steps": 2},
    "clip_norm": 2.5,
    "batch_scaling": {"rule": "linear", "base_batch": 60},
}


@pytest.fixture
def finished_run(run_simulated: Callable[..., RunLogTables]) -> RunLogTables:
    return run_simulated({"ring": RING, "asp": ASP, "switch": SWITCH}, workers=4, workload=WORKLOAD)


def test_learning_rates_are_those_of_the_updates_of_each_strategy(finished_run: RunLogTables) -> None:
    """The declared rate is 0.01: doubled for the batch, and divided by four where one of four gradients updates."""
    rows = make_training_settings_table(trial.plan for trial in finished_run.trials)

    assert {row.strategy: row.rates for row in rows} == {
        "ring": "0.02 (× 2 for the batch)",
        "asp": "0.005 (× 2 for the batch)",
        "switch": "0.02, after the switch 0.005 (× 2 for the batch)",
    }
    assert {(row.workers, row.batch, row.clip_norm) for row in rows} == {(4, 120, "2.5")}
    assert {row.optimiser for row in rows} == {"adamw (weight_decay 0.1, beta1 0.9, beta2 0.999, epsilon 1e-08)"}
    (schedule,) = {row.schedule for row in rows}
    assert schedule.startswith("cosine (warmup 0.0")


def test_report_shows_the_training_settings(finished_run: RunLogTables) -> None:
    """A reader who compares strategies must see whether their learning rates differ."""
    page = write_report(finished_run.folder.path).read_text()

    assert "Training settings" in page
    assert "0.02, after the switch 0.005 (× 2 for the batch)" in page


def test_factor_for_the_batch_is_mentioned_only_where_it_applies(run_simulated: Callable[..., RunLogTables]) -> None:
    """Without `batch_scaling`, or on the batch of the declared rate, there is nothing to explain."""
    scaling = {"rule": "sqrt", "base_batch": 240}
    run = run_simulated({"ring": RING}, workload={"epochs": 1, "batch_scaling": scaling})

    (row,) = make_training_settings_table(trial.plan for trial in run.trials)

    assert (row.rates, row.schedule) == ("0.05", "constant")


def test_plans_without_an_optimiser_give_no_row(make_trial: Callable[..., Any]) -> None:
    """Reports of runs of older versions can still be written."""
    assert make_training_settings_table([make_trial({}).plan]) == ()


@pytest.mark.parametrize(
    ("component", "text"),
    [
        ({"kind": "sgd", "weight_decay": 0.0}, "sgd"),
        ({"kind": "momentum", "momentum": 0.9, "nesterov": True}, "momentum (momentum 0.9, nesterov on)"),
        ({"kind": "step", "milestones": [0.5, 0.75], "milestone_steps": []}, "step (milestones 0.5 and 0.75)"),
        ({"kind": "linear_warmup", "warmup": None, "warmup_steps": 10}, "linear_warmup (warmup_steps 10)"),
    ],
)
def test_components_are_described_by_the_settings_that_have_an_effect(component: dict[str, Any], text: str) -> None:
    assert describe_component(component) == text
