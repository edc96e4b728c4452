"""The search for the earliest switch bisects, and returns the earliest fraction that was good enough."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ensayo.cli import app
from ensayo.strategy_switch_search import bisect_switch_fraction, find_earliest_good_switch, find_only_strategy_switch
from services.scenario.scenario import Scenario
from services.schema.errors import UserError

pytestmark = pytest.mark.without_nodes

SCENARIO = """\
# How early?
name: early
workload:
  dataset: {kind: diabetes}
  model: {kind: linear}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 64
  epochs: 4
cluster:
  workers: 2
  worker: {throughput: 1000/s}
strategies:
  switch: {kind: sync_switch, fraction: 1.0}
baseline: false
"""


@given(knee=st.floats(0.0, 1.0), tries=st.integers(1, 10))
def test_the_answer_is_good_enough_and_within_one_interval_of_the_knee(knee: float, tries: int) -> None:
    """Where quality jumps at one fraction, halving the interval finds it: 2⁻ᵏ after k tries."""
    tried = list(
        bisect_switch_fraction(lambda fraction: (0.97 if fraction >= knee else 0.9, 10 * fraction), 0.01, tries)
    )

    best = find_earliest_good_switch(tried)
    assert len(tried) == 1 + tries
    assert best.is_good_enough
    assert best.fraction >= knee
    assert best.fraction - knee <= 2.0**-tries


def test_the_search_tries_the_sequence_of_the_paper() -> None:
    """50, 25, 12.5 and 6.25 % when every switch is good enough: Sync-Switch's published runs."""
    fractions = [tried.fraction for tried in bisect_switch_fraction(lambda fraction: (1.0, fraction), 0.01, 4)]

    assert fractions == [1.0, 0.5, 0.25, 0.125, 0.0625]


@pytest.mark.parametrize("quality", [float("nan"), float("-inf")])
def test_a_run_that_diverged_is_never_good_enough(quality: float) -> None:
    """Not a number compares with nothing."""
    tried = list(bisect_switch_fraction(lambda fraction: (1.0 if fraction == 1.0 else quality, 1.0), 0.5, 2))

    assert find_earliest_good_switch(tried).fraction == 1.0


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"kind": "all_reduce"}, "has 0: none"),
        ({"kind": "strategy_switch"}, "write for example strategies.it.when: {kind: at, fraction: 0.5}"),
    ],
)
def test_a_scenario_without_a_fraction_is_rejected(strategy: dict[str, str], message: str) -> None:
    """The search varies one number; the error says how to declare it."""
    work = {
        "dataset": {"kind": "diabetes"},
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 64,
    }
    scenario = Scenario.decode({"name": "it", "workload": work, "strategies": {"it": strategy}})

    with pytest.raises(UserError, match=message.replace("{", r"\{").replace("}", r"\}")):
        find_only_strategy_switch(scenario)


@pytest.mark.slow
def test_the_command_prints_the_sequence_and_the_answer(tmp_path: Path) -> None:
    """Every try leaves a run with its report."""
    path = tmp_path / "early.yaml"
    path.write_text(SCENARIO)
    options = ["--engine", "simulated", "--runs", str(tmp_path / "runs"), "--repeats", "1", "--tries", "2"]

    done = CliRunner().invoke(app, ["search-switch", str(path), *options, "--beta", "1"])

    assert done.exit_code == 0, done.output
    fractions = [line.split()[1] for line in done.output.splitlines() if line.startswith("fraction")]
    assert fractions == ["1", "0.5", "0.25"]
    assert "answer: strategies.switch.fraction = 0.25" in done.output
    assert len(list((tmp_path / "runs").glob("early/2*/report.html"))) == 3
