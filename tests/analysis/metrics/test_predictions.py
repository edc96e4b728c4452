"""Predicted times of random scenarios in virtual time: within 5 % of the measured times, or marked as inapplicable."""

from itertools import islice
from pathlib import Path

import pytest
from analysed_trial import analyse_trial_spec, simulate_to_trial_folder
from random_scenarios import STRATEGY_KINDS, random_trials

from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_trial_tables
from analysis.results.measure_trial import measure_trial
from analysis.results.trial_result import TrialResult
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, make_plan
from services.scenario.scenario import TrialSpec

MAX_ERROR = 0.05


def is_predicted(trial: TrialSpec) -> bool:
    """Return whether the plan of a trial has a prediction without a mark."""
    return not make_plan(trial, "run", "simulated", DummyAddresses()).predicted.inapplicable_reason


def measure(trial: TrialSpec, folder: Path) -> tuple[Plan, TrialResult]:
    """Simulate a trial; return its plan and its metrics."""
    plan = simulate_to_trial_folder(trial, folder)
    return plan, measure_trial(read_trial_tables(TrialFolder(folder)), ())


@pytest.mark.parametrize("kind", STRATEGY_KINDS)
@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_every_prediction_without_a_mark_is_within_five_percent(kind: str, count: int, tmp_path: Path) -> None:
    """Settings are random: short last batches, unequal shares, speeds and links, variation, jitter and losses."""
    drawn = islice(random_trials(kind, seed=3), 60 * count)  # an end, in case all have a mark
    trials = [*islice(filter(is_predicted, drawn), count)]
    assert len(trials) == count
    for number, trial in enumerate(trials):
        plan, result = measure(trial, tmp_path / "trials" / str(number))
        is_compared = (result.predicted_step_seconds, result.predicted_samples_per_second) != (None, None)
        assert is_compared or plan.second_phase
        if result.predicted_step_seconds is not None:
            assert result.measured_step_seconds == pytest.approx(result.predicted_step_seconds, rel=MAX_ERROR)
        if result.predicted_samples_per_second is not None:
            assert result.samples_per_second == pytest.approx(result.predicted_samples_per_second, rel=MAX_ERROR)


@pytest.mark.parametrize("kind", STRATEGY_KINDS)
@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_other_keys_of_a_scenario_leave_every_trial_valid(kind: str, count: int, tmp_path: Path) -> None:
    """Number formats, micro-batches, uneven data, events and early ends, with settings that are random, too."""
    for number, trial in enumerate(islice(random_trials(kind, seed=5, has_other_keys=True), count)):
        result = analyse_trial_spec(trial, tmp_path / "trials" / str(number)).result

        assert (result.status, result.verdict, result.reasons) == ("success", "valid", [])
        if trial.scenario.training_workload.target:
            assert result.evaluations == 1


def test_nothing_is_compared_where_packets_are_lost(tmp_path: Path) -> None:
    """No closed form contains losses: the plan gives the reason, and a report has no prediction to compare with."""
    marked = [
        (plan, result)
        for number, trial in enumerate(islice(random_trials("all_reduce", seed=1), 20))
        if trial.scenario.cluster.worker.loss
        for plan, result in [measure(trial, tmp_path / "trials" / str(number))]
    ]

    assert marked
    for plan, result in marked:
        assert plan.predicted.inapplicable_reason == "packets are lost or have jitter"
        assert plan.training_inapplicable_reason == plan.predicted.inapplicable_reason
        assert result.predicted_step_seconds is result.predicted_mean_step_seconds is None
        assert result.predicted_samples_per_second is None
