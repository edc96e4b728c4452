"""Analysis of a strategy switch: whether it happened, whether it paid off, and why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.checks.host.host_overhead import check_host_added_time
from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.training.replicas import check_model_replicas_agree
from analysis.checks.verdict import VerdictLevel
from analysis.exports.readable_trials import read_readable_trials
from analysis.figures import AnalysedRun
from analysis.figures.predicted import draw_predicted_step_times
from analysis.figures.switch import draw_switch_time_savings
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.metrics.goodput import list_node_losses
from analysis.metrics.step_times.step_attempts import number_step_attempts
from analysis.metrics.strategy_changes.strategy_switch import StrategySwitchResult, measure_switch_times
from analysis.metrics.strategy_changes.strategy_switch_text import describe_strategy_switch, describe_switch_outcomes
from analysis.metrics.strategy_changes.strategy_switch_verdict import (
    FinalQualityBySwitch,
    find_final_model_qualities,
    judge_strategy_switch,
)
from analysis.reading.damage import FileProblem
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.reading.training_phases import training_phases
from analysis.report.headline import headline_sentences
from analysis.report.report import render_report_page
from analysis.report.wording import format_milliseconds, format_number
from analysis.results.analyse_run import analyse_run
from analysis.results.analyse_trial import analyse_trial
from analysis.results.summary import RunSummary
from services.cluster.links.fluid_link import to_goodput_bytes_per_s

STALLING = {"throughput": "1000/s", "variation": {"kind": "on_off", "slowdown": 5, "slow_steps": 4, "fast_steps": 12}}
ACCURATE = {"metric": "accuracy", "at_least": 0.8}
RING_TO_ASP = {"kind": "strategy_switch", "when": {"kind": "at", "fraction": 0.5}}

RunSimulated = Callable[..., RunLogTables]


def summary_of(run: RunLogTables) -> RunSummary:
    return analyse_run(run.folder)[1]


def test_a_switch_away_from_stragglers_pays_because_no_worker_waits(run_simulated: RunSimulated) -> None:
    """The parts add up to the measured gain, and the largest part is the straggler time of this cluster."""
    run = run_simulated({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)

    summary = summary_of(run)
    ring, trial = summary.trials
    switch = trial.switch

    assert ring.switch is None
    assert switch is not None
    assert switch.gain is not None
    assert switch.saved_s is not None
    exchange_s = switch.gain.latency_s + switch.gain.bandwidth_s + switch.gain.queueing_s
    assert exchange_s == pytest.approx(switch.gain.exchange_s)
    assert switch.gain.straggler_s + exchange_s + switch.gain.finish_s == pytest.approx(switch.gain.batch_s)
    assert switch.gain.straggler_s > 0.8 * switch.gain.batch_s > 0
    assert ring.seconds is not None
    assert trial.seconds == pytest.approx(ring.seconds - switch.saved_s, rel=0.1)  # halves of a run are not quite alike
    assert any(
        "the switch paid" in sentence and "no wait for the slowest" in sentence
        for sentence in headline_sentences(summary)
    )


@pytest.mark.parametrize("target", [None, {"metric": "accuracy", "at_least": 0.99}])
def test_a_switch_that_ruins_the_model_did_not_pay_although_batches_are_faster(
    run_simulated: RunSimulated, target: dict[str, Any] | None
) -> None:
    """At thirty times the learning rate no worker waits for stragglers, and the model does not learn."""
    workload = {"target": target} if target else {}
    run = run_simulated(
        {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP | {"rate": 30.0}}, workload=workload, **STALLING
    )

    summary = summary_of(run)
    ring, trial = summary.trials
    headline = " ".join(headline_sentences(summary))

    assert trial.switch is not None
    assert trial.switch.saved_s is not None
    assert trial.switch.saved_s > 0
    assert trial.switch.has_lost_model_quality
    quality_sentence = (
        f"accuracy ends at {format_number(trial.final['accuracy'])} instead of {format_number(ring.final['accuracy'])}"
    )
    missed = "accuracy ≥ 0.99 was missed: " if target else ""
    assert f", but {missed}{quality_sentence}" in headline
    assert "the switch did not pay: a batch takes" in headline
    assert "the switch paid" not in headline
    drawing = draw_switch_time_savings(AnalysedRun(run, summary))
    assert drawing is not None
    assert "did not pay" in drawing.title
    assert drawing.data["verdict"].tolist() == ["quality was lost"]


@pytest.mark.parametrize("workload", [{}, {"target": {"metric": "accuracy", "at_least": 0.999}}])
def test_a_switch_without_a_trial_to_compare_with_only_saved_time(
    run_simulated: RunSimulated, workload: dict[str, Any]
) -> None:
    """No trial ran without the switch: its model may have been better, or may have missed the target, too."""
    summary = summary_of(run_simulated({"switch": RING_TO_ASP}, workload=workload, **STALLING))

    headline = " ".join(headline_sentences(summary))

    assert "the switch saved time, because a batch takes" in headline
    assert "paid" not in headline


def test_a_trial_whose_rule_never_switched_is_the_synchronous_reference(run_simulated: RunSimulated) -> None:
    """A sweep of the fraction contains its own synchronous trial, at fraction 1."""
    fractions = {"sweep": {"strategies.switch.fraction": [0.25, 0.5, 1.0]}}
    run = run_simulated({"switch": {"kind": "sync_switch", "fraction": 1.0}}, scenario_overrides=fractions, **STALLING)

    *early, synchronous = summary_of(run).trials

    for trial in early:
        assert trial.switch is not None
        model_qualities = find_final_model_qualities([(trial, synchronous)])
        assert model_qualities is not None
        assert trial.switch.has_lost_model_quality == model_qualities.is_worse_with_switch
        assert trial.switch.verdict in ("paid", "quality was lost")


@pytest.mark.parametrize(
    ("with_switch_s", "without_switch_s", "verdict"),
    [(2.0, 3.0, "paid"), (3.0, 2.0, "did not pay"), (2.0, None, "paid")],
)
def test_with_a_target_the_trial_that_reaches_it_first_decides_the_verdict(
    run_simulated: RunSimulated, with_switch_s: float, without_switch_s: float | None, verdict: str
) -> None:
    """Batches are faster in all three; the time to the target includes the extra samples that staleness costs."""
    run = run_simulated(
        {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, workload={"target": ACCURATE}, **STALLING
    )
    ring, trial = summary_of(run).trials
    assert trial.switch is not None
    assert trial.switch.before is not None
    needed = trial.switch.before.samples + 1

    judged = judge_strategy_switch(
        replace(trial, time_to_target_s=with_switch_s, samples_to_target=needed),
        replace(ring, time_to_target_s=without_switch_s),
        None,
    )

    assert judged.verdict == verdict
    assert f"took {format_number(with_switch_s)} s" in judged.quality


@pytest.mark.parametrize(
    ("accuracy", "without_switch_s", "verdict"),
    [(0.95, None, "paid"), (0.5, None, "quality was lost"), (0.95, 2.0, "quality was lost")],
)
def test_a_target_missed_without_the_switch_too_is_not_lost_by_the_switch(
    run_simulated: RunSimulated, accuracy: float, without_switch_s: float | None, verdict: str
) -> None:
    """If both miss an unreachable target, the better model lost nothing; if the other reaches it, quality was lost."""
    target = {"metric": "accuracy", "at_least": 0.999}
    run = run_simulated(
        {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, workload={"target": target}, **STALLING
    )
    ring, trial = summary_of(run).trials
    trial = replace(trial, time_to_target_s=None, final={"accuracy": accuracy})
    ring = replace(ring, time_to_target_s=without_switch_s, final={"accuracy": 0.94})

    judged = judge_strategy_switch(trial, ring, find_final_model_qualities([(trial, ring)]))

    assert judged.verdict == verdict
    assert ("accuracy ≥ 0.999 was missed" in judged.quality) == (verdict != "paid")


@given(st.lists(st.floats(0.5, 0.95), min_size=2, max_size=6), st.floats(0.02, 0.3))
def test_quality_is_worse_if_the_loss_exceeds_the_spread_over_seeds(without_switch: list[float], loss: float) -> None:
    """The same loss with every seed counts; a loss that changes its sign between seeds does not."""
    with_loss = [quality - loss for quality in without_switch]
    with_noise = [
        quality + loss * (1 if seed % 2 else -1.01)
        for seed, quality in enumerate(without_switch[: len(without_switch) // 2 * 2])
    ]

    assert FinalQualityBySwitch("accuracy", tuple(with_loss), tuple(without_switch)).is_worse_with_switch
    assert not FinalQualityBySwitch(
        "accuracy", tuple(with_noise), tuple(without_switch[: len(with_noise)])
    ).is_worse_with_switch
    assert not FinalQualityBySwitch("accuracy", tuple(without_switch), tuple(with_loss)).is_worse_with_switch
    assert FinalQualityBySwitch("loss", tuple(without_switch), tuple(with_loss)).is_worse_with_switch


def test_a_switch_to_a_saturated_server_does_not_pay(run_simulated: RunSimulated) -> None:
    """Equal workers do not wait in a ring either; eight of them queue at a server that can answer four."""
    summary = summary_of(run_simulated({"switch": RING_TO_ASP}, workers=8, rate="1mbit"))
    (trial,) = summary.trials

    assert trial.switch is not None
    assert trial.switch.break_even_workers is not None
    assert trial.switch.break_even_workers < 8
    assert trial.switch.saved_s is not None
    assert trial.switch.saved_s < 0
    assert any("did not pay" in sentence for sentence in headline_sentences(summary))


@pytest.mark.parametrize("synchrony", ["bsp", "asp"])
def test_checks_accept_workers_that_became_servers(run_simulated: RunSimulated, synchrony: str) -> None:
    """After the switch they report no parameters and do no steps, but answer the steps of other workers."""
    placement = {"kind": "promoted", "workers": 2}
    after = {"kind": "parameter_server", "placement": placement, "synchrony": {"kind": synchrony}}
    (trial,) = run_simulated({"switch": RING_TO_ASP | {"after": after}}).trials

    assert check_model_replicas_agree(trial).level == VerdictLevel.VALID
    assert expected_bytes_sent(trial) == bytes_sent(trial)
    assert [phase.new_server_names for phase in training_phases(trial)] == [(), ("worker-2", "worker-3")]
    switch = measure_switch_times(trial)
    assert switch is not None
    assert switch.gain is not None
    assert switch.gain.shares_s == pytest.approx(-240 / 4 / 1000, rel=0.01)  # from a quarter of 240 to a half
    assert abs(switch.gain.straggler_s) < 0.2 * -switch.gain.shares_s
    parts = ("shares_s", "straggler_s", "finish_s", "latency_s", "bandwidth_s", "queueing_s")
    assert sum(getattr(switch.gain, part) for part in parts) == pytest.approx(switch.gain.batch_s)


def test_workers_that_finish_early_are_not_counted_as_queueing(run_simulated: RunSimulated) -> None:
    """Equal workers, far too few to fill the server; some of them do the last steps alone."""
    strategies = {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}
    summary = summary_of(run_simulated(strategies, workers=8, workload={"batch": 128, "epochs": 2}))
    _, trial = summary.trials
    switch = trial.switch

    assert switch is not None
    assert switch.gain is not None
    assert switch.break_even_workers is not None
    assert switch.break_even_workers > 16
    assert abs(switch.gain.queueing_s) < 0.05 * abs(switch.gain.batch_s)
    assert switch.gain.finish_s == pytest.approx(switch.gain.batch_s, rel=0.1)
    assert any(
        "did not pay" in sentence and "workers finish at different times (-" in sentence
        for sentence in headline_sentences(summary)
    )


def test_waiting_at_a_staleness_bound_is_not_counted_as_queueing(run_simulated: RunSimulated) -> None:
    """After a switch to bounded staleness workers still wait for the slowest, only less."""
    ssp = {"kind": "parameter_server", "synchrony": {"kind": "ssp", "staleness": 1}}
    (trial,) = run_simulated({"switch": RING_TO_ASP | {"after": ssp}}, **STALLING).trials
    assert trial.switch_record is not None
    later = trial.steps[trial.steps["start_s"] >= trial.switch_record.second_strategy_start_s]

    switch = measure_switch_times(trial)

    assert switch is not None
    assert switch.gain is not None
    assert switch.gain.straggler_s > 0
    assert later["wait_s"].mean() > 0.1 * later["step_s"].mean()
    assert abs(switch.gain.queueing_s) < 0.05 * later["wait_s"].mean()


@pytest.mark.parametrize("idle_s", [0.1, 10.0])
def test_seconds_without_steps_are_not_counted_as_exchange(run_simulated: RunSimulated, idle_s: float) -> None:
    """The same steps in a longer trial change only the finishing time."""
    (trial,) = run_simulated({"switch": RING_TO_ASP}).trials
    assert trial.seconds is not None

    switch, longer = (
        measure_switch_times(trial),
        measure_switch_times(replace(trial, seconds=trial.seconds + idle_s)),
    )

    assert switch is not None
    assert switch.gain is not None
    assert switch.after is not None
    assert longer is not None
    assert longer.gain is not None
    cost_s = idle_s * trial.plan.batch / switch.after.samples
    expected = {"finish_s": switch.gain.finish_s - cost_s, "batch_s": switch.gain.batch_s - cost_s}
    assert vars(longer.gain) == pytest.approx({**vars(switch.gain), **expected})


@pytest.mark.parametrize("kind", ["all_reduce", "parameter_server"])
def test_workers_finish_together_if_synchronous_and_before_a_switch(run_simulated: RunSimulated, kind: str) -> None:
    """A worker that stops first waits within the strategy switch."""
    asp = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    strategy = {"kind": "strategy_switch", "before": asp, "after": {"kind": kind}}
    (trial,) = run_simulated({"switch": strategy | {"when": {"kind": "at", "fraction": 0.5}}}, **STALLING).trials

    switch = measure_switch_times(trial)

    assert switch is not None
    assert switch.before is not None
    assert switch.after is not None
    assert switch.before.finishing_s == pytest.approx(0.0, abs=1e-9)
    assert switch.after.finishing_s < 0.01 * switch.after.batch_s


def test_a_switch_that_never_happened_is_reported_as_such(run_simulated: RunSimulated) -> None:
    """A row that looks like all-reduce must not be taken for a switch."""
    run = run_simulated({"switch": {"kind": "strategy_switch"}})

    summary = summary_of(run)

    assert summary.trials[0].switch is not None
    assert summary.trials[0].switch.outcome == "never switched"
    assert any("never switched" in sentence for sentence in headline_sentences(summary))
    drawing = draw_switch_time_savings(AnalysedRun(run, summary))
    assert drawing is not None
    assert "never switched" in drawing.title


def run_with_edited_log(tmp_path: Path, edit: Callable[[str], str]) -> AnalysedRun:
    """The run, read again after an edit of its coordinator's log."""
    (log,) = tmp_path.glob("trials/*/logs/coordinator.log")
    log.write_text(edit(log.read_text()))
    run = read_readable_trials(RunFolder(tmp_path))
    return AnalysedRun(run, summary_of(run))


def test_a_damaged_switch_record_is_not_reported_as_never_switched(run_simulated: RunSimulated, tmp_path: Path) -> None:
    run_simulated({"switch": RING_TO_ASP})

    run = run_with_edited_log(tmp_path, lambda text: "".join(line[:40] + "\n" for line in text.splitlines()))

    assert run.summary.trials[0].switch is None
    assert draw_switch_time_savings(run) is None
    assert not any("never switched" in sentence for sentence in headline_sentences(run.summary))


def test_a_switch_recorded_only_by_workers_is_damage(run_simulated: RunSimulated, tmp_path: Path) -> None:
    """The coordinator's line about the switch is lost; the other lines can be read."""
    run_simulated({"switch": RING_TO_ASP})

    run = run_with_edited_log(
        tmp_path,
        lambda text: "".join(line for line in text.splitlines(keepends=True) if '"switch_committed"' not in line),
    )

    (damage,) = run.summary.damage[-1:]
    assert "logs/coordinator.log: no switch_committed or switch_aborted event, but " in damage
    assert draw_switch_time_savings(run) is None


@pytest.mark.parametrize("key", ["step", "samples", "seconds", "loaded"])
def test_a_switch_record_without_a_number_is_damage_and_does_not_end_the_report(
    run_simulated: RunSimulated, key: str
) -> None:
    """Another version may have written the record; a computation with the missing number would fail."""
    (trial,) = run_simulated({"switch": RING_TO_ASP}).folder.trial_folders
    log = trial.log_path("coordinator")
    lines = log.read_text().splitlines(keepends=True)
    (row,) = (place for place, line in enumerate(lines) if '"switch_committed"' in line)
    lines[row] = lines[row].replace(f'"{key}": ', '"another": ')
    log.write_text("".join(lines))

    damage = analyse_trial(trial)

    assert isinstance(damage, FileProblem)
    assert "logs: cannot be interpreted (KeyError at analysis/reading/logs/switch_record.py:" in str(damage)
    assert f"'{key}'" in str(damage)


def test_the_table_prints_the_mean_step_that_is_compared_with_the_prediction(run_simulated: RunSimulated) -> None:
    """The median over two strategies is a step of one of them, so the mean is compared with the closed forms."""
    run = run_simulated({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)

    summary = summary_of(run)
    text = render_report_page(run.folder, summary, [])

    for trial in summary.trials:
        assert trial.measured_step_seconds is not None
        assert trial.predicted_step_seconds is not None
        assert trial.unpredicted_step_time_share == pytest.approx(
            trial.measured_step_seconds / trial.predicted_step_seconds - 1
        )
        assert f"{format_milliseconds(trial.measured_step_seconds)}<small>mean</small>" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"kind": "all_reduce"}, {"kind": "parameter_server", "synchrony": {"kind": "asp"}}),
        ({"kind": "parameter_server", "synchrony": {"kind": "asp"}}, {"kind": "all_reduce"}),
        ({"kind": "parameter_server"}, {"kind": "all_reduce"}),
    ],
)
def test_checks_judge_both_phases_of_a_switch(
    run_simulated: RunSimulated, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Bytes, replicas and closed forms hold for each strategy by itself, and for the strategy switch between them."""
    strategy = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "fraction": 0.5}}
    (trial,) = run_simulated({"switch": strategy}).trials

    verdicts = [check(trial) for check in (check_bytes_sent, check_model_replicas_agree, check_host_added_time)]

    assert [verdict.level for verdict in verdicts] == [VerdictLevel.VALID] * 3, verdicts
    assert [phase.name for phase in training_phases(trial)] == ["before", "after"]


@pytest.mark.parametrize("step", [3, 18])
def test_checks_accept_a_worker_that_was_lost_before_or_after_a_switch(run_simulated: RunSimulated, step: int) -> None:
    """It has reported no hash of its parameters at the switch, or at none after it."""
    recovery = {"on_failure": "continue", "heartbeat_timeout": "100ms"}
    events = [{"kind": "kill", "of": ["worker-1"], "at": {"step": step}}]
    strategy = RING_TO_ASP | {"when": {"kind": "at", "step": 12}}
    (trial,) = run_simulated({"switch": strategy}, scenario_overrides={"recovery": recovery, "events": events}).trials

    assert trial.switch_record is not None
    assert trial.switch_record.outcome == "switched"
    assert trial.membership.lost_node_names == {"worker-1"}
    verdicts = [check(trial) for check in (check_bytes_sent, check_model_replicas_agree)]
    assert [verdict.level for verdict in verdicts] == [VerdictLevel.VALID] * 2, verdicts


def test_losses_after_a_switch_to_asynchronous_training_each_have_their_own_epoch(run_simulated: RunSimulated) -> None:
    """Asynchronous workers log no recovery: without it, synchronous training would be taken to be still recovering."""
    recovery = {"on_failure": "continue", "heartbeat_timeout": "100ms"}
    events = [{"kind": "kill", "of": [f"worker-{rank}"], "at": {"step": step}} for rank, step in ((1, 15), (2, 20))]
    strategy = RING_TO_ASP | {"when": {"kind": "at", "step": 12}}
    (trial,) = run_simulated({"switch": strategy}, scenario_overrides={"recovery": recovery, "events": events}).trials
    assert trial.switch_record is not None
    committed_s, workers = trial.switch_record.committed_s, trial.plan.workers

    losses = list_node_losses(trial)

    assert all(loss.time_s > committed_s for loss in losses)
    assert [(loss.node, loss.epoch, loss.workers, loss.lost_with) for loss in losses] == [
        ("worker-1", 1, workers - 1, ""),
        ("worker-2", 2, workers - 2, ""),
    ]
    assert all(loss.recovery_s is not None for loss in losses)
    assert set(number_step_attempts(trial)) == {0}


def test_bytes_of_an_aborted_strategy_switch_are_not_an_error(run_simulated: RunSimulated) -> None:
    """The server's link fails while it receives the model: some bytes are already sent, and training goes on."""
    link_failure = {"kind": "link", "at": {"time": "1200ms"}, "of": ["server-0"], "downlink": "1kbit", "lasts": "600s"}
    scenario_overrides = {"events": [link_failure], "timeouts": {"step": "3s"}}
    switch_late = RING_TO_ASP | {"when": {"kind": "at", "step": 29}}
    workload = {"batch": 50, "epochs": 2, "stop": "budget"}
    run = run_simulated(
        {"switch": switch_late}, 3, workload=workload, scenario_overrides=scenario_overrides, throughput="400/s"
    )
    (trial,) = run.trials

    assert trial.switch_record is not None
    assert trial.switch_record.abort_reason
    assert sum(trial.switch_record.transfer_bytes_sent.values()) > 0.02 * bytes_sent(trial)["worker-0"]
    assert expected_bytes_sent(trial) == bytes_sent(trial)
    assert check_bytes_sent(trial).level == VerdictLevel.VALID


@pytest.mark.parametrize(
    ("node", "reported", "sent", "level"),
    [
        ("worker-0", 0, 200, VerdictLevel.VALID),
        ("worker-0", 30, 230, VerdictLevel.VALID),
        ("worker-0", 30, 200, VerdictLevel.INVALID),  # the reported bytes must have been sent
        ("worker-0", 30, 270, VerdictLevel.INVALID),
        ("worker-0", 70, 270, VerdictLevel.INVALID),  # more than the planned strategy switch
        ("server-0", 0, 200, VerdictLevel.VALID),  # servers do not report their share of the strategy switch
        ("server-0", 0, 230, VerdictLevel.VALID),
        ("server-0", 0, 250, VerdictLevel.VALID),
        ("server-0", 0, 270, VerdictLevel.INVALID),
        ("server-0", 0, 150, VerdictLevel.INVALID),
    ],
)
def test_an_aborted_strategy_switch_may_send_no_more_bytes_than_planned(
    make_trial: Callable[..., TrialLogTables],
    line: Callable[..., str],
    steps_line: Callable[..., str],
    stop_line: Callable[..., str],
    node: str,
    reported: int,
    sent: int,
    level: VerdictLevel,
) -> None:
    """50 bytes of strategy switch by a node that sends 100 bytes per step."""
    record = {"verb": "abort", "seconds": 1.0, "bytes_sent": reported, "messages_sent": 1}
    worker = [steps_line([{}, {}], "worker-0"), line("node_switch", record, node="worker-0")]
    logs = {
        "coordinator": [line("switch_aborted", {"reason": "late"})],
        "worker-0": [*worker, stop_line("worker-0", payload_bytes_sent=sent if node == "worker-0" else 0)],
        "server-0": [stop_line("server-0", payload_bytes_sent=sent if node == "server-0" else 0)],
    }
    no_bytes = {"worker-0": 0, "server-0": 0}
    trial = make_trial(
        logs,
        servers=1,
        bytes_per_step=no_bytes | {node: 100},
        second_phase={"model_transfer_bytes": no_bytes | {node: 50}},
    )

    assert check_bytes_sent(trial).level == level


def test_every_phase_is_compared_with_its_own_closed_form(run_simulated: RunSimulated) -> None:
    """One median over both would compare a ring's steps with a server's form."""
    run = run_simulated({"switch": RING_TO_ASP})

    drawing = draw_predicted_step_times(AnalysedRun(run, summary_of(run)))

    assert drawing is not None
    assert list(drawing.data["phase"]) == ["before", "after"]
    assert drawing.data["relative_deviation"].abs().max() < 0.05


@pytest.mark.parametrize("servers", [1, 2])
def test_the_break_even_number_of_workers_is_that_of_the_plan(run_simulated: RunSimulated, servers: int) -> None:
    """n* = s·(t_c·B/S + 2), and s·(t_c·B/S + 1) + 1 where several servers answer in turn with one message each."""
    after = {"kind": "parameter_server", "servers": servers, "synchrony": {"kind": "asp"}}
    (trial,) = run_simulated({"switch": RING_TO_ASP | {"after": after}}, rate="10mbit").trials
    plan, switch = trial.plan, measure_switch_times(trial)

    assert switch is not None
    computed = plan.predicted.compute_s * to_goodput_bytes_per_s(10e6) / plan.vector_bytes
    one_message_each = servers * (computed + 1) + 1
    assert switch.break_even_workers == pytest.approx(computed + 2 if servers == 1 else one_message_each, rel=1e-3)


def test_colocated_servers_have_no_saturation_number(run_simulated: RunSimulated) -> None:
    after = {"kind": "parameter_server", "placement": {"kind": "colocated"}, "synchrony": {"kind": "asp"}}
    (trial,) = run_simulated({"switch": RING_TO_ASP | {"after": after}}, rate="10mbit").trials

    assert trial.plan.saturation_workers is None


def test_a_switch_before_the_first_step_has_no_gain(run_simulated: RunSimulated) -> None:
    """There is no batch before the switch to compare with."""
    (trial,) = run_simulated({"switch": RING_TO_ASP | {"when": {"kind": "at", "step": 0}}}).trials

    switch = measure_switch_times(trial)

    assert switch is not None
    assert (switch.outcome, switch.gain, switch.share) == ("switched", None, 0.0)


def test_a_switch_forced_before_its_window_is_full_records_no_rule_value(run_simulated: RunSimulated) -> None:
    """The values of the rule at later points are not the reason for the switch."""
    rule = {"kind": "plateau", "window": 3, "force_at": 1}
    (trial,) = run_simulated({"switch": RING_TO_ASP | {"when": rule}}).trials

    switch = measure_switch_times(trial)

    assert switch is not None
    assert (switch.outcome, switch.value) == ("switched", None)
    assert trial.switch_record is not None
    assert any(point["value"] is not None for point in trial.switch_record.rule_points)


def test_only_switches_that_can_be_judged_are_counted_as_paying_or_not(run_simulated: RunSimulated) -> None:
    run = run_simulated({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)
    _, trial = summary_of(run).trials
    assert trial.switch is not None
    paid = replace(trial.switch, verdict="paid")
    early, lost_quality = replace(paid, gain=None, verdict="unknown"), replace(paid, verdict="quality was lost")

    assert describe_switch_outcomes([paid, early]) == ""
    assert describe_switch_outcomes([paid, early, lost_quality]) == "it paid in 1 of 2"


def test_the_cost_of_staleness_is_the_time_of_extra_samples_to_the_target(run_simulated: RunSimulated) -> None:
    """Compared with a trial of the same seed that kept the first strategy."""
    strategies = {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP | {"when": {"kind": "at", "step": 2}}}
    run = run_simulated(strategies, workload={"target": ACCURATE, "epochs": 12}, **STALLING)

    ring, trial = (summary := summary_of(run)).trials
    switch = trial.switch

    assert switch is not None
    assert switch.before is not None
    assert switch.after is not None
    assert switch.stale_s is not None
    assert trial.samples_to_target is not None
    assert ring.samples_to_target is not None
    batches_after = (trial.samples_to_target - switch.before.samples) / run.trials[0].plan.batch
    extra_s = switch.stale_s * batches_after  # of the whole trial
    extra_samples = trial.samples_to_target - ring.samples_to_target
    assert extra_samples != 0
    assert extra_s == pytest.approx(extra_samples / run.trials[0].plan.batch * switch.after.batch_s)
    drawing = draw_switch_time_savings(AnalysedRun(run, summary))
    assert drawing is not None
    assert drawing.data["stale_s"].tolist() == [switch.stale_s]


def test_without_a_trial_that_did_not_switch_the_cost_of_staleness_is_unknown(run_simulated: RunSimulated) -> None:
    """The time of a batch is known, but not the number of batches that the first strategy would have needed."""
    (trial,) = summary_of(run_simulated({"switch": RING_TO_ASP}, workload={"target": ACCURATE}, **STALLING)).trials

    assert trial.switch is not None
    assert trial.switch.has_switched
    assert trial.switch.stale_s is None


@pytest.fixture
def switched(run_simulated: RunSimulated) -> StrategySwitchResult:
    """A trial that switched halfway."""
    switch = measure_switch_times(run_simulated({"switch": RING_TO_ASP}).trials[0])
    assert switch is not None
    return switch


def test_a_batch_time_that_did_not_change_is_given_no_cause(switched: StrategySwitchResult) -> None:
    """ "100 ms instead of 100 ms", because no worker waits, would explain nothing."""
    assert switched.before is not None
    unchanged = replace(switched, after=switched.before, saved_s=-0.01, verdict="did not pay")

    text = describe_strategy_switch(unchanged, 4)

    assert text.startswith("the switch did not pay: a batch takes ")
    assert text.endswith(" ms as before")


def test_long_batch_times_are_printed_in_digits(switched: StrategySwitchResult) -> None:
    """Two seconds are printed as 2,000 ms, not as 2e+03."""
    assert switched.before is not None
    assert switched.after is not None
    assert switched.gain is not None
    slow = replace(
        switched,
        before=replace(switched.before, batch_s=4.0),
        after=replace(switched.after, batch_s=2.0),
        gain=replace(switched.gain, batch_s=2.0, straggler_s=2.0),
        saved_s=9.0,
    )

    assert (
        "a batch takes 2,000 ms instead of 4,000 ms: no wait for the slowest (+2,000 ms saved)"
        in describe_strategy_switch(slow, 4)
    )


def test_a_switch_after_the_last_step_differs_from_one_before_the_first(switched: StrategySwitchResult) -> None:
    assert "after the last step" in describe_strategy_switch(replace(switched, after=None, gain=None, saved_s=None), 4)
    assert "before the first step" in describe_strategy_switch(
        replace(switched, before=None, gain=None, saved_s=None), 4
    )


def test_the_sentence_names_one_repeat_or_the_median_of_several(run_simulated: RunSimulated) -> None:
    """A batch that takes 60 ms instead of 115 in one run of five is no finding about all five."""
    summary = summary_of(run_simulated({"switch": RING_TO_ASP}))
    second_repeat = replace(summary.trials[0], id="again", repeat=1)

    one_repeat, two_repeats = (
        headline_sentences(replace(summary, trials=trials))
        for trials in (summary.trials, [*summary.trials, second_repeat])
    )

    assert any("a batch takes" in sentence and sentence.endswith("(one repeat).") for sentence in one_repeat)
    assert any("a batch takes" in sentence and "(the median of 2 repeats" in sentence for sentence in two_repeats)
