"""The benchmark of recovery: its schedule of kills, its closed form, its gates, and the phases after a kill."""

import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from analysis.laws.checkpoint_interval import FailureCosts
from benchmarks.recovery import __main__ as bench
from benchmarks.recovery import cases
from benchmarks.recovery.cases import many_kills_scenario, policy_scenario, undisturbed_scenario, worker_names
from benchmarks.recovery.expected_goodput import expect_rejoin_run, measure_costs
from benchmarks.recovery.gates import list_gates
from benchmarks.recovery.kill_outcomes import KillOutcome
from benchmarks.recovery.kill_schedule import ScheduledKill, draw_kills
from benchmarks.recovery.measurements import LongTrial, RecoveryMeasurements, choose_epochs
from benchmarks.recovery.node_resources import NodeSample, find_longest_lives, list_node_samples
from benchmarks.recovery.results_page import format_gates, format_page
from benchmarks.recovery.trials import run_trials

COSTS = FailureCosts(workers=8, detection_s=2.1, recovery_s=0.1, step_s=1.0, absence_s=5.0, join_s=0.2)
KILLED = KillOutcome(
    node="worker-2",
    killed_s=10.0,
    ended_s=10.1,
    lost_s=12.1,
    continued_s=12.3,
    joined_s=14.0,
    rejoined_s=14.2,
    full_step_s=14.3,
)


@pytest.fixture(scope="module")
def long_trial(tmp_path_factory: pytest.TempPathFactory) -> LongTrial:
    """Four kills of eight workers in virtual time, two of them at nearly the same moment, beside two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    times_s = [8.0, 20.0, 21.5, 40.0]
    kills = [ScheduledKill(time_s, f"worker-{rank}") for rank, time_s in enumerate(times_s)]
    (trial,) = run_trials(many_kills_scenario(kills, epochs=20), "simulated", folder)
    undisturbed = run_trials(undisturbed_scenario(20) | {"repeats": 2}, "simulated", folder)
    return LongTrial(trial, 4, replace(COSTS, absence_s=2.5), trial, tuple(undisturbed), {})


@pytest.fixture(scope="module")
def measured(long_trial: LongTrial, tmp_path_factory: pytest.TempPathFactory) -> RecoveryMeasurements:
    """One trial of each policy in virtual time, and the long trial."""
    folder = tmp_path_factory.mktemp("runs")
    continued, rejoined = (
        tuple(run_trials(policy_scenario(policy) | {"repeats": 1}, "simulated", folder))
        for policy in ("continue", "rejoin")
    )
    return RecoveryMeasurements(continued, rejoined, long_trial)


def test_a_schedule_is_determined_by_its_seed_and_spares_workers_that_are_away() -> None:
    """A kill of a worker that is away would end no process, so fewer than the declared kills would be measured."""
    names = worker_names(8)
    kills = draw_kills(names, 100, mean_gap_s=62.0, absence_s=12.0, seed=1)

    assert kills == sorted(kills) == draw_kills(names, 100, mean_gap_s=62.0, absence_s=12.0, seed=1)
    assert kills != draw_kills(names, 100, mean_gap_s=62.0, absence_s=12.0, seed=2)
    assert len(kills) == 100
    assert set(Counter(kill.node_name for kill in kills)) == set(names)
    for name in names:
        own_s = [kill.time_s for kill in kills if kill.node_name == name]
        assert all(later_s - earlier_s > 12.0 for earlier_s, later_s in pairwise(own_s))


def test_kills_of_a_long_schedule_have_the_declared_mean_gap() -> None:
    kills = draw_kills(worker_names(8), 20_000, mean_gap_s=62.0, absence_s=12.0, seed=1)

    assert 8 * kills[-1].time_s / len(kills) == pytest.approx(74.0, rel=0.03)


def test_without_kills_the_whole_time_counts() -> None:
    assert expect_rejoin_run(COSTS, 0, 500.0).goodput == 1.0
    assert expect_rejoin_run(COSTS, 0, 500.0).seconds == 500.0


def test_the_expected_duration_and_goodput_agree_with_each_other() -> None:
    """The goodput is that of the failure rate which the duration gives."""
    expected = expect_rejoin_run(COSTS, 100, 600.0)

    assert expected.seconds == pytest.approx(600.0 / expected.goodput)
    assert expected.goodput == pytest.approx(float(COSTS.rejoin_goodput(np.array(8 * expected.seconds / 100 - 5.0))))
    assert 0.5 < expected.goodput < 0.75


def test_few_kills_cost_their_own_seconds_each() -> None:
    """To first order, each kill costs D + R + S/2, the absence of one worker until it joins again, and J + S/2."""
    kills, work_s = 4, 10_000.0
    absent_s = COSTS.absence_s - COSTS.downtime_s - COSTS.step_s / 2
    cost_s = COSTS.downtime_s + COSTS.step_s / 2 + COSTS.join_s + COSTS.step_s / 2 + absent_s / 8

    expected = expect_rejoin_run(COSTS, kills, work_s)

    assert expected.seconds - work_s == pytest.approx(kills * cost_s, rel=0.03)


def test_costs_are_means_of_kills_with_all_phases() -> None:
    """A worker that joins before its loss is known has no detection, and must not count as one of 0 s."""
    later = replace(KILLED, lost_s=12.5, continued_s=12.9, joined_s=15.0, rejoined_s=15.4)

    costs = measure_costs([KILLED, later, replace(KILLED, lost_s=None)], workers=8, step_s=1.0)

    assert costs.detection_s == pytest.approx(2.3)
    assert costs.recovery_s == pytest.approx(0.3)
    assert costs.absence_s == pytest.approx(4.5)
    assert costs.join_s == pytest.approx(0.3)
    with pytest.raises(ValueError, match="no kill was followed"):
        measure_costs([replace(KILLED, lost_s=None)], workers=8, step_s=1.0)


def test_the_training_goes_on_after_the_last_kill() -> None:
    """Otherwise some of the declared kills would not take place."""
    epochs = choose_epochs(COSTS, 100, at_least_s=900.0)

    steps_s = cases.TRAINING_SAMPLES / 320
    assert expect_rejoin_run(COSTS, 100, epochs * steps_s).seconds >= 900.0
    assert expect_rejoin_run(COSTS, 100, (epochs - 1) * steps_s).seconds < 900.0


def test_phases_of_overlapping_kills_belong_to_their_own_workers(long_trial: LongTrial) -> None:
    """When worker-1 joins again, worker-2 is dead but still a member: that is not its own return."""
    first, second, third, fourth = long_trial.trial.outcomes

    assert [outcome.node for outcome in long_trial.trial.outcomes] == list(worker_names(4))
    for outcome in (first, fourth):
        assert 1.125 <= (outcome.detection_s or 0.0) <= 1.875
        assert outcome.recovery_s == pytest.approx(outcome.detection_s)
        assert outcome.absence_s == pytest.approx(2.0)
        assert outcome.return_s == pytest.approx(2.0, abs=0.05)
    assert second.full_step_s == third.full_step_s  # all eight train when both are back
    assert third.joined_s == pytest.approx(23.5)


def test_many_kills_change_neither_budget_nor_model(long_trial: LongTrial) -> None:
    """Sums of other groups of workers round differently, so the loss differs in its last digits only."""
    trial = long_trial.trial

    assert trial.uses_budget_exactly
    assert trial.result.final["loss"] == pytest.approx(long_trial.undisturbed[0].result.final["loss"], rel=1e-4)
    assert trial.result.final["loss"] != pytest.approx(long_trial.undisturbed[1].result.final["loss"], rel=1e-4)


def test_all_gates_are_on_the_page(measured: RecoveryMeasurements, long_trial: LongTrial) -> None:
    """A missed limit is marked, and stays."""
    gates = list(list_gates(measured))
    page = format_page(measured, long_trial, "simulated", "a test")

    assert format_gates(gates) in page
    assert [gate.is_met for gate in gates[:6]] == [True] * 6
    missed = [replace(gate, is_met=False) for gate in gates]
    assert format_gates(missed).count("(**not met**)") == len(gates)


def test_the_long_training_can_be_left_out(measured: RecoveryMeasurements) -> None:
    """Times of one kill take six minutes, the long training twenty more."""
    assert len(list(list_gates(replace(measured, long=None)))) == 6


def test_a_kill_without_a_return_misses_the_gate(measured: RecoveryMeasurements) -> None:
    """Otherwise a worker that never came back would be left out of the median."""
    (trial,) = measured.rejoined
    trials = (trial, replace(trial, outcomes=(replace(KILLED, full_step_s=None),)))

    gate = list(list_gates(replace(measured, rejoined=trials)))[5]

    assert not gate.is_met
    assert "1 missing" in gate.measured


def test_fewer_kills_than_declared_miss_the_gate(measured: RecoveryMeasurements, long_trial: LongTrial) -> None:
    long = replace(long_trial, declared_kills=5)

    gate = next(gate for gate in list_gates(replace(measured, long=long)) if "ended a process" in gate.description)

    assert (gate.measured, gate.limit, gate.is_met) == ("4", "5", False)


def test_a_failed_long_trial_has_no_goodput(measured: RecoveryMeasurements, long_trial: LongTrial) -> None:
    failed = replace(long_trial.trial.result, status="failed", status_reason="server-0 is lost")
    long = replace(long_trial, trial=replace(long_trial.trial, result=failed))

    *_, gate = list_gates(replace(measured, long=long))

    assert (gate.measured, gate.is_met) == ("not measured: server-0 is lost", False)


def test_a_sample_has_memory_and_descriptors_of_a_node_of_the_folder(tmp_path: Path) -> None:
    """Other runs of this host have nodes with the same names."""
    run = tmp_path / "runs" / "mine" / "20261127T000000Z-aaaa"
    (run / "trials").mkdir(parents=True)
    (tmp_path / "runs" / "latest").symlink_to(run)
    program = "import os, sys; files = [os.dup(1) for _ in range(20)]; print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, "services.node", "node", "worker-3"]
    init = ["/sbin/docker-init", *command[1:], f"{run.name}/trials"]  # of a container, with the command of its node
    processes = [
        subprocess.Popen([*command, f"{name}/trials"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in (run.name, "20261127T000000Z-bbbb")
    ]
    processes.append(subprocess.Popen(init, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        (sample,) = list_node_samples(tmp_path / "runs")
    finally:
        for process in processes:
            process.communicate()

    assert (sample.node, sample.pid) == ("worker-3", processes[0].pid)
    assert sample.descriptors >= 23
    assert 2**20 < sample.resident_bytes < 2**28
    assert sample.time_s <= time.monotonic()


def test_growth_is_that_of_the_process_that_lived_longest() -> None:
    """A restarted node is another process, and the first seconds are its start."""
    short = [NodeSample(float(time_s), "worker-0", 1, 100, 9) for time_s in range(0, 20, 5)]
    long = [NodeSample(20.0 + time_s, "worker-0", 2, 100 + time_s, 9 + time_s // 50) for time_s in range(0, 105, 5)]
    brief = [NodeSample(1.0, "worker-1", 3, 100, 9)]

    growth = find_longest_lives([*short, *long, *brief])

    assert set(growth) == {"worker-0"}
    assert (growth["worker-0"].seconds, growth["worker-0"].resident_bytes) == (90.0, (110, 200))
    assert growth["worker-0"].descriptors == (9, 11)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kills", "-1"], "--kills -1: the number of kills is at least 1, or 0 for no long training"),
        (["--kills", "5", "--write", "mine"], "--write: the page has 100 kills; remove --kills"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A measurement takes half an hour."""
    assert bench.main(arguments) == bench.EXIT_USAGE
    assert message in capsys.readouterr().err
