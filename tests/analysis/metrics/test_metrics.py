"""Every metric against a log small enough to compute by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.metrics.learning.progress import final_eval_metrics, samples_per_second, steps_done, trained_sample_count
from analysis.metrics.learning.staleness import staleness_statistics
from analysis.metrics.learning.target import evaluation_interval_samples, samples_to_target, time_to_target_s
from analysis.metrics.step_times.predicted_step import predicted_mean_step_s
from analysis.metrics.step_times.step_seconds import (
    mean_hidden_communication_s,
    step_phase_seconds,
    step_time_statistics,
    typical_step_s,
)
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.statistics.centre import olympic_mean

MakeTrial = Callable[..., TrialLogTables]
Line = Callable[..., str]
RunSimulated = Callable[..., RunLogTables]


ACCURATE = {"metric": "accuracy", "at_least": 0.9}


@pytest.fixture
def coordinator(line: Line) -> list[str]:
    """Run from 10 s to 20 s; accuracy 0.5, 0.92, 0.91 and mae 3, 2, 1 at 12, 14 and 16 s."""
    scores = [(12, 100, 0.5, 3.0), (14, 200, 0.92, 2.0), (16, 300, 0.91, 1.0)]
    evals = [
        line("eval_metrics", {"accuracy": accuracy, "mae": mae}, time_s, epoch_num=1, samples_count=samples, step=1)
        for time_s, samples, accuracy, mae in scores
    ]
    return [line("run_start", time_s=10), *evals, line("run_stop", time_s=20, status="success")]


def test_time_to_target_runs_from_run_start_to_the_first_evaluation_that_reached_it(
    make_trial: MakeTrial, coordinator: list[str]
) -> None:
    assert time_to_target_s(make_trial({"coordinator": coordinator}, target=ACCURATE)) == pytest.approx(4)


def test_samples_to_target_are_those_of_the_first_evaluation_that_reached_it(
    make_trial: MakeTrial, coordinator: list[str]
) -> None:
    assert samples_to_target(make_trial({"coordinator": coordinator}, target=ACCURATE)) == 200


@pytest.mark.parametrize(("at_least", "interval"), [(0.9, 100), (0.0, 100), (0.99, None)])
def test_the_resolution_of_samples_to_target_is_the_evaluation_interval(
    make_trial: MakeTrial, coordinator: list[str], at_least: float, interval: int | None
) -> None:
    """The model reached the target at some point since the previous evaluation, or since the start."""
    trial = make_trial({"coordinator": coordinator}, target={"metric": "accuracy", "at_least": at_least})

    assert evaluation_interval_samples(trial) == interval


def test_an_error_metric_reaches_its_target_from_above(make_trial: MakeTrial, coordinator: list[str]) -> None:
    trial = make_trial({"coordinator": coordinator}, target={"metric": "mae", "at_most": 1.5})

    assert time_to_target_s(trial) == pytest.approx(6)


@pytest.mark.parametrize("target", [None, {"metric": "accuracy", "at_least": 0.99}])
def test_a_target_that_is_missed_or_absent_has_no_time(
    make_trial: MakeTrial, coordinator: list[str], target: dict[str, Any] | None
) -> None:
    assert time_to_target_s(make_trial({"coordinator": coordinator}, target=target)) is None


def test_a_diverged_metric_never_reaches_the_target(make_trial: MakeTrial, line: Line) -> None:
    diverged = line("eval_metrics", {"mae": math.nan}, 12, samples_count=100)

    trial = make_trial({"coordinator": [diverged]}, target={"metric": "mae", "at_most": 1.0})

    assert samples_to_target(trial) is None


def test_logs_without_eval_metrics_give_their_eval_accuracy(make_trial: MakeTrial, line: Line) -> None:
    event_line = line("eval_accuracy", 0.7, 12, samples_count=100, metric="accuracy")

    assert final_eval_metrics(make_trial({"coordinator": [event_line]})) == {"accuracy": 0.7}


def test_final_metrics_are_the_last_ones(make_trial: MakeTrial, coordinator: list[str]) -> None:
    assert final_eval_metrics(make_trial({"coordinator": coordinator})) == {"accuracy": 0.91, "mae": 1.0}


def test_progress_counts_steps_of_the_busiest_worker_and_samples_of_all(
    make_trial: MakeTrial, coordinator: list[str], steps_line: Line
) -> None:
    logs = {
        "coordinator": coordinator,
        "worker-0": [steps_line([{}, {}, {}], "worker-0")],
        "worker-1": [steps_line([{}, {}], "worker-1")],
    }

    trial = make_trial(logs, workers=2)

    assert (steps_done(trial), trained_sample_count(trial)) == (3, 50)
    assert samples_per_second(trial) == pytest.approx(5)  # 50 samples from 10 s to 20 s


def test_step_time_statistics_cover_all_workers_and_steps(make_trial: MakeTrial, steps_line: Line) -> None:
    first = steps_line([{"step_s": 1.0}, {"step_s": 2.0}], "worker-0")
    second = steps_line([{"step_s": 3.0}, {"step_s": 6.0}], "worker-1")

    statistics = step_time_statistics(make_trial({"worker-0": [first], "worker-1": [second]}, workers=2))

    assert statistics == pytest.approx({"mean": 3.0, "p50": 2.5, "p95": 5.55})  # 3 + 0.85 x (6 - 3)


def test_a_prediction_is_compared_with_the_mean_step_of_a_round(make_trial: MakeTrial, steps_line: Line) -> None:
    """Three steps of 1 s and one of 5 s are 2 s on average; the median step contains no exchange."""
    rows = [{"step_s": 5.0 if step % 4 == 3 else 1.0} for step in range(10)]  # the last two are no whole round

    trial = make_trial({"worker-0": [steps_line(rows, "worker-0")]}, workers=1, exchange_period=4)

    assert typical_step_s(trial) == 2.0
    assert (step_time_statistics(trial) or {})["p50"] == 1.0


def test_a_closed_form_of_varying_speeds_is_compared_with_the_mean_full_step(
    make_trial: MakeTrial, steps_line: Line
) -> None:
    """An on/off straggler has two step lengths and the median is one of them; the closed form gives their mean."""
    rows = [{"step_s": 1.0, "samples": 8}, {"step_s": 1.0, "samples": 8}, {"step_s": 4.0, "samples": 8}]
    short = {"step_s": 0.5, "samples": 3}  # the last batch of an epoch
    node = {"name": "worker-0", "role": "worker", "rank": 0, "variation": {"kind": "on_off"}}

    trial = make_trial(
        {"worker-0": [steps_line([*rows, short], "worker-0")]}, workers=1, nodes=[node], batch=8, train_samples=27
    )

    assert typical_step_s(trial) == 2.0


def test_log_batches_of_one_node_are_joined_into_one_table(make_trial: MakeTrial, steps_line: Line) -> None:
    trial = make_trial({"worker-0": [steps_line([{}], "worker-0"), steps_line([{}, {}], "worker-0")]})

    assert len(trial.steps) == 3


def test_whether_a_batch_is_full_is_a_property_of_the_step(make_trial: MakeTrial, steps_line: Line) -> None:
    """In a smaller last batch, some workers may compute as many samples as before; the step is still shorter."""
    full, last = {"step_s": 2.0, "samples": 4}, {"step_s": 1.0, "samples": 4}
    lines = {
        name: [steps_line([full, full, last | {"samples": count}], name)]
        for name, count in (("worker-0", 4), ("worker-1", 2))
    }
    trial = make_trial(lines, batch=8, train_samples=22)

    assert typical_step_s(trial) == 2.0
    assert (step_time_statistics(trial) or {})["mean"] == pytest.approx(5 / 3)


def test_time_outside_all_phases_is_reported_as_other(make_trial: MakeTrial, steps_line: Line) -> None:
    rows = [{"step_s": 2.0, "compute_s": 1.0, "exchange_s": 0.25}, {"step_s": 1.0, "compute_s": 0.6, "exchange_s": 0.3}]

    phases = step_phase_seconds(make_trial({"worker-0": [steps_line(rows, "worker-0")]}))

    assert phases == pytest.approx(
        {"data": 0, "compute": 0.8, "exchange": 0.275, "wait": 0, "update": 0, "other": 0.425}
    )


def test_hidden_communication_is_the_mean_of_the_steps_of_the_phases(make_trial: MakeTrial, steps_line: Line) -> None:
    """Compute contains it, so both must be of the same steps."""
    rows = [{"hidden_s": 0.2, "samples": 8}, {"hidden_s": 0.4, "samples": 8}, {"hidden_s": 0.0, "samples": 2}]

    trial = make_trial({"worker-0": [steps_line(rows, "worker-0")]}, batch=8, train_samples=18)

    assert mean_hidden_communication_s(trial) == pytest.approx(0.3)


def test_hidden_communication_that_was_not_measured_is_unknown(make_trial: MakeTrial, steps_line: Line) -> None:
    """Zero would claim that nothing overlaps."""
    assert mean_hidden_communication_s(make_trial({"worker-0": [steps_line([{}, {}], "worker-0")]})) is None
    assert mean_hidden_communication_s(make_trial({})) is None


def test_phase_seconds_cover_only_steps_on_full_batches(make_trial: MakeTrial, steps_line: Line) -> None:
    """An epoch's last batch is smaller, and no closed form covers it."""
    rows = [{"compute_s": 0.6, "samples": 8}, {"compute_s": 0.8, "samples": 8}, {"compute_s": 0.1, "samples": 2}]

    phases = step_phase_seconds(make_trial({"worker-0": [steps_line(rows, "worker-0")]}, batch=8, train_samples=18))

    assert phases is not None
    assert phases["compute"] == pytest.approx(0.7)


def test_a_round_with_a_short_step_is_left_out_as_a_whole(make_trial: MakeTrial, steps_line: Line) -> None:
    """The short step is the one that exchanges: without it alone, the round would contain no exchange."""
    full_round = [{"exchange_s": 0.0, "samples": 8}, {"exchange_s": 0.4, "samples": 8}]
    short_round = [{"exchange_s": 0.0, "samples": 8}, {"exchange_s": 0.9, "samples": 2}]

    plan = {"exchange_period": 2, "predicted": {"compute_s": 1, "exchange_s": 0, "formula": "t_c"}, "batch": 8}

    with_full_round, only_short_round = (
        make_trial({"worker-0": [steps_line(rows, "worker-0")]}, train_samples=train_samples, **plan)
        for rows, train_samples in ((full_round + short_round, 26), (short_round, 10))
    )

    assert (step_phase_seconds(with_full_round) or {})["exchange"] == pytest.approx(0.2)
    assert predicted_mean_step_s(with_full_round) == 1
    assert (step_phase_seconds(only_short_round) or {})["exchange"] == pytest.approx(0.45)
    assert predicted_mean_step_s(only_short_round) is None


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "all_reduce"},
        {"kind": "parameter_server"},
        {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
        {"kind": "easgd", "period": 2},
    ],
)
def test_phases_add_up_to_the_mean_step_of_the_closed_form(
    run_simulated: RunSimulated, strategy: dict[str, Any]
) -> None:
    """Virtual time has no overhead: 1,437 samples are five batches of 256 and one of 157 per epoch."""
    (trial,) = run_simulated({"it": strategy}, workload={"batch": 256}).trials

    phases, predicted_s = step_phase_seconds(trial), predicted_mean_step_s(trial)

    assert phases is not None
    assert predicted_s is not None
    assert sum(phases.values()) == pytest.approx(predicted_s, rel=0.02)
    assert float(trial.steps["step_s"].mean()) < 0.95 * predicted_s


@pytest.mark.parametrize(("strategy", "waited_s"), [("bsp", 0.2), ("asp", 0.0)])
def test_a_synchronous_worker_waits_until_the_slowest_one_begins_its_exchange(
    make_trial: MakeTrial, steps_line: Line, strategy: str, waited_s: float
) -> None:
    """The first begins at 0.6 s and the second at 1.0 s: 0.4 s of waiting, shared by two workers."""
    logs = {
        "worker-0": [steps_line([{"compute_s": 0.6, "exchange_s": 0.9}], "worker-0")],
        "worker-1": [steps_line([{"compute_s": 1.0, "exchange_s": 0.5}], "worker-1")],
    }

    phases = step_phase_seconds(make_trial(logs, workers=2, strategy={"synchrony": {"kind": strategy}}))

    assert phases is not None
    assert phases["wait"] == pytest.approx(waited_s)
    assert phases["exchange"] == pytest.approx(0.7 - waited_s)


def test_bytes_sent_are_counted_by_the_node_or_summed_over_its_steps(
    make_trial: MakeTrial, steps_line: Line, stop_line: Line
) -> None:
    logs = {
        "worker-0": [steps_line([{}, {}], "worker-0"), stop_line("worker-0", payload_bytes_sent=210)],
        "worker-1": [steps_line([{}, {}], "worker-1")],
    }

    assert bytes_sent(make_trial(logs, workers=2)) == {"worker-0": 210, "worker-1": 200}


def test_a_server_is_expected_to_answer_the_mean_of_its_workers_steps(make_trial: MakeTrial, steps_line: Line) -> None:
    logs = {
        "worker-0": [steps_line([{}, {}, {}], "worker-0")],
        "worker-1": [steps_line([{}], "worker-1")],
    }

    trial = make_trial(logs, workers=2, bytes_per_step={"worker-0": 100, "worker-1": 100, "server-0": 200})

    assert expected_bytes_sent(trial) == {"worker-0": 300, "worker-1": 100, "server-0": 400}


def test_staleness_statistics_count_updates_by_staleness(make_trial: MakeTrial, updates_line: Line) -> None:
    aged = [[version, 0, version, age, 10, 0.0] for version, age in enumerate((0, 1, 1, 4))]

    statistics = staleness_statistics(make_trial({"server-0": [updates_line(aged[:3]), updates_line(aged[3:])]}))

    assert statistics == {"mean": 1.5, "max": 4, "histogram": {"0": 1, "1": 2, "4": 1}}


def test_a_trial_without_servers_has_no_staleness(make_trial: MakeTrial) -> None:
    assert staleness_statistics(make_trial({})) is None


def test_the_olympic_mean_drops_the_fastest_and_the_slowest() -> None:
    """One run that missed its target may be the dropped one, as in MLPerf."""
    assert olympic_mean(np.array([1.0, 2.0, 4.0, math.inf])) == 3.0
    assert olympic_mean(np.array([1.0, 2.0])) == 1.5
    assert math.isinf(olympic_mean(np.array([1.0, math.inf, math.inf])))
