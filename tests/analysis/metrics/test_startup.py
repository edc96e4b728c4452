"""Start-up time, and the number and duration of evaluations, read from the files of a trial."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.metrics.learning.target import evaluation_count, evaluation_seconds
from analysis.metrics.startup import startup_s
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.results.measure_trial import measure_trial

MakeTrial = Callable[..., TrialLogTables]
Line = Callable[..., str]
STAGES = {"up": 1.5, "gate": 3.0, "probe": 2.0, "run": 9.0, "down": 0.5}
TARGET = {"metric": "accuracy", "at_least": 0.9}


@pytest.fixture
def started_trial(make_trial: MakeTrial, line: Line, steps_line: Line) -> MakeTrial:
    """A trial whose first step begins 0.25 virtual seconds after the start of training."""

    def make(timings_s: Any, **planned: Any) -> TrialLogTables:
        logs = {
            "coordinator": [line("run_start", time_s=100.0), line("run_stop", time_s=103.0)],
            "worker-0": [steps_line([{"step": 0, "start_s": 100.5}, {"step": 1, "start_s": 101.0}], "worker-0")],
            "worker-1": [steps_line([{"step": 0, "start_s": 100.25}], "worker-1")],
        }
        return make_trial(logs, {"timings_s": timings_s}, **planned)

    return make


def test_start_up_ends_with_the_first_step_of_any_worker_and_leaves_out_the_probes(started_trial: MakeTrial) -> None:
    """Probes check the emulated links; a user without Ensayo has no such time."""
    assert startup_s(started_trial(STAGES)) == pytest.approx(1.5 + 3.0 - 2.0 + 0.25)


def test_start_up_is_wall_time(started_trial: MakeTrial) -> None:
    """Python starts no slower under dilation; only the time after the start signal is virtual in the log."""
    assert startup_s(started_trial(STAGES, dilation=4.0)) == pytest.approx(1.5 + 3.0 - 2.0 + 4 * 0.25)


@pytest.mark.parametrize("stages", [None, {}, {"run": 1.0}, {"up": 1.0, "gate": 2.0}])
def test_start_up_is_not_measured_where_the_engine_recorded_no_stages(started_trial: MakeTrial, stages: Any) -> None:
    """Virtual time has no start of nodes; earlier versions did not record the probes, which may take seconds."""
    assert startup_s(started_trial(stages)) is None


def test_start_up_is_not_measured_without_a_step(make_trial: MakeTrial) -> None:
    """The trial failed before it trained."""
    assert startup_s(make_trial({}, {"timings_s": STAGES})) is None


def evaluations(line: Line, *accuracies: float, seconds: float = 0.5) -> list[str]:
    """Log of one evaluation per second, each of which takes `seconds`."""
    lines = [line("run_start", time_s=0.0)]
    for number, accuracy in enumerate(accuracies, start=1):
        place: dict[str, Any] = {"samples_count": 100 * number, "epoch_num": 1}
        lines += [
            line("eval_start", time_s=number - seconds, **place),
            line("eval_metrics", {"accuracy": accuracy, "loss": 0.1}, time_s=number, step=1, **place),
            line("eval_stop", time_s=number, **place),
        ]
    return lines


def test_evaluations_are_counted_up_to_the_one_that_reached_the_target(make_trial: MakeTrial, line: Line) -> None:
    """Later evaluations, as of asynchronous workers that end after the target, took no part of the time to target."""
    trial = make_trial({"coordinator": evaluations(line, 0.5, 0.8, 0.95, 0.7, 0.96)}, target=TARGET)

    assert (evaluation_count(trial), evaluation_seconds(trial)) == (3, 1.5)


@pytest.mark.parametrize("target", [None, {"metric": "accuracy", "at_least": 0.99}])
def test_all_evaluations_are_counted_without_a_reached_target(
    make_trial: MakeTrial, line: Line, target: dict[str, Any] | None
) -> None:
    """They all took part of the time of the run."""
    trial = make_trial({"coordinator": evaluations(line, 0.5, 0.8, 0.95)}, target=target)

    assert (evaluation_count(trial), evaluation_seconds(trial)) == (3, 1.5)


def test_the_duration_of_evaluations_is_unknown_where_a_start_is_lost(make_trial: MakeTrial, line: Line) -> None:
    """A zero could be read as an evaluation that took no time."""
    lines = [text for text in evaluations(line, 0.5, 0.95) if "eval_start" not in text]
    trial = make_trial({"coordinator": lines}, target=TARGET)

    assert (evaluation_count(trial), evaluation_seconds(trial)) == (2, None)


def test_a_trial_without_evaluations_has_none(make_trial: MakeTrial) -> None:
    """A trial may fail before its first evaluation."""
    trial = make_trial({}, target=TARGET)

    assert (evaluation_count(trial), evaluation_seconds(trial)) == (0, 0.0)


def test_frequent_evaluations_refine_the_samples_to_target(run_simulated: Callable[..., RunLogTables]) -> None:
    """The target is reached at most as late, and the summary states the interval of samples that it was in."""
    strategies = {"ring": {"kind": "all_reduce"}}
    workload = {"target": TARGET, "epochs": 12}
    cases = {"default": {}, "frequent": {"workload.evaluate_every": 480}}
    overrides = {
        "sweep": {"evaluations": {"cases": {name: case or {"workload.epochs": 12} for name, case in cases.items()}}}
    }
    trials = run_simulated(strategies, workload=workload, scenario_overrides=overrides).trials
    default, frequent = (measure_trial(trial, []) for trial in trials)

    assert default.samples_to_target is not None
    assert frequent.samples_to_target is not None
    assert default.samples_to_target - 1438 < frequent.samples_to_target <= default.samples_to_target
    assert (default.evaluation_samples, default.evaluations) == (1438, default.samples_to_target // 1438)
    assert frequent.evaluation_samples == pytest.approx(480, abs=120)
    assert frequent.evaluations == pytest.approx(frequent.samples_to_target / 480, abs=1)
    assert (frequent.startup_s, frequent.evaluation_seconds) == (None, 0.0)
