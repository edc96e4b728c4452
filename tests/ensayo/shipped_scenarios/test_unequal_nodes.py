"""The shipped scenarios `unequal-nodes` and `stragglers`: what load balancing gains, in the plan and in the report."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import ensayo
from analysis.reading.run_folder import RunFolder
from analysis.results.analyse_run import analyse_run
from ensayo.cli import app


def test_plan_states_shares_times_and_bound() -> None:
    """A user sees before a run what balanced shares can gain."""
    lines = CliRunner().invoke(app, ["plan", "unequal-nodes"]).stdout.splitlines()

    balanced = (
        "2 x 69, 5 x 68, 34 samples per step; compute 69 ms instead of 128 ms with equal shares, 1.86 times as fast "
        "(at most 1.88); step "
    )
    found = [line for line in lines if "load balancing" in line]
    assert len(found) == 2
    assert found[0].startswith(f"#001 load balancing at the declared speeds: {balanced}")
    assert found[1].startswith(f"#002 load balancing at the declared speeds: {balanced}")


def test_plan_states_no_shares_of_workers_without_declared_speeds() -> None:
    """Measured speeds are not known before a run."""
    options = [
        "--engine",
        "local",
        "--set",
        "cluster.worker={uplink: 1gbit, downlink: 1gbit}",
        "--set",
        "cluster.groups=[]",
    ]
    options += ["--set", "strategies={dynamic: {kind: all_reduce, balance: {kind: dynamic}}}", "--set", "dilation=1.0"]

    output = CliRunner().invoke(app, ["plan", "unequal-nodes", *options]).stdout

    assert "#000 load balancing: shares follow measured speeds" in output
    assert "times as fast" not in output


def test_dynamic_shares_reach_95_percent_of_the_bound_in_the_report(tmp_path: Path) -> None:
    """The answer to the question of the scenario, with the gain of three kinds of shares."""
    run = ensayo.rehearse("unequal-nodes", "simulated", tmp_path)

    trials = {trial.strategy: trial for trial in analyse_run(RunFolder(run.folder))[1].trials}
    assert {trial.verdict for trial in trials.values()} == {"valid"}
    seconds = {name: trial.measured_step_seconds or 0.0 for name, trial in trials.items()}
    balance = trials["dynamic"].batch_balance
    assert balance is not None
    assert balance.adjustment_count <= 3
    assert (balance.share_of_bound or 0) >= 0.95
    assert balance.shares[-1].spread < 0.1
    assert seconds["uniform"] / seconds["proportional"] == pytest.approx(1.85, rel=0.02)
    report = (run.folder / "report.html").read_text()
    assert "equal shares would take 128 ms" in report
    assert (run.folder / "figures" / "batch_shares.csv").is_file()


def test_stragglers_compares_eight_remedies_with_the_same_seeds() -> None:
    """Differences between remedies are then not differences between seeds."""
    plans = ensayo.plan("stragglers")

    remedies = set(plans["strategy"]) - {"bsp"}
    assert remedies == {"proportional", "dynamic", "backup", "elastic", "ssp", "local_sgd", "partial", "ad_psgd"}
    assert plans.groupby("strategy")["seed"].apply(sorted).map(tuple).nunique() == 1
