"""What a report says of a switch: whether it came, whether it paid, and why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.checks.host.host_overhead import check_host_overhead
from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.training.replicas import check_model_replicas_agree
from analysis.checks.verdict import VerdictLevel
from analysis.exports.readable_trials import read_readable_trials
from analysis.figures import AnalysedRun
from analysis.figures.predicted import draw_predicted_steps
from analysis.figures.switch import draw_time_saved_by_switch
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.metrics.strategy_switch import (
    StrategySwitchResult,
    describe_strategy_switch,
    describe_switch_outcomes,
    measure_strategy_switch,
)
from analysis.metrics.strategy_switch_verdict import FinalModelQualities, final_model_qualities, judge_strategy_switch
from analysis.reading.damage import FileDamage
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunTable, TrialTable
from analysis.reading.training_phases import training_phases
from analysis.report.headline import headline_sentences
from analysis.report.report import render_report_page
from analysis.report.wording import format_milliseconds, format_number
from analysis.results.analyse_run import analyse_run
from analysis.results.analyse_trial import analyse_trial
from analysis.results.summary import RunSummary
from services.cluster.links.fluid_link import goodput_bytes_per_s

STALLING = {"throughput": "1000/s", "variation": {"kind": "on_off", "slowdown": 5, "slow_steps": 4, "fast_steps": 12}}
ACCURATE = {"metric": "accuracy", "at_least": 0.8}
RING_TO_ASP = {"kind": "strategy_switch", "when": {"kind": "at", "fraction": 0.5}}

Rehearse = Callable[..., RunTable]


def summary_of(run: RunTable) -> RunSummary:
    return analyse_run(run.folder)[1]


def test_a_switch_away_from_stragglers_pays_because_nobody_waits(rehearse: Rehearse) -> None:
    """The gain adds up to what was measured, and its largest part is the one that the cluster was built for."""
    run = rehearse({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)

    summary = summary_of(run)
    ring, trial = summary.trials
    found = trial.switch

    assert ring.switch is None
    assert found is not None
    assert found.gain is not None
    assert found.saved_s is not None
    exchange_s = found.gain.latency_s + found.gain.bandwidth_s + found.gain.queueing_s
    assert exchange_s == pytest.approx(found.gain.exchange_s)
    assert found.gain.straggler_s + exchange_s + found.gain.finish_s == pytest.approx(found.gain.batch_s)
    assert found.gain.straggler_s > 0.8 * found.gain.batch_s > 0
    assert ring.seconds is not None
    assert trial.seconds == pytest.approx(ring.seconds - found.saved_s, rel=0.1)  # halves of a run are not quite alike
    assert any(
        "the switch paid" in sentence and "no wait for the slowest" in sentence
        for sentence in headline_sentences(summary)
    )


@pytest.mark.parametrize("target", [None, {"metric": "accuracy", "at_least": 0.99}])
def test_a_switch_that_ruins_the_model_never_paid_however_fast_its_batches_are(
    rehearse: Rehearse, target: dict[str, Any] | None
) -> None:
    """Thirty times the rate: nobody waits for stragglers any more, and nobody learns."""
    workload = {"target": target} if target else {}
    run = rehearse(
        {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP | {"rate": 30.0}}, workload=workload, **STALLING
    )

    summary = summary_of(run)
    ring, trial = summary.trials
    told = " ".join(headline_sentences(summary))

    assert trial.switch is not None
    assert trial.switch.saved_s is not None
    assert trial.switch.saved_s > 0
    assert trial.switch.has_lost_model_quality
    ends = (
        f"accuracy ends at {format_number(trial.final['accuracy'])} instead of {format_number(ring.final['accuracy'])}"
    )
    missed = "accuracy ≥ 0.99 was missed: " if target else ""
    assert f", but {missed}{ends}" in told
    assert "the switch did not pay: a batch takes" in told
    assert "the switch paid" not in told
    drawing = draw_time_saved_by_switch(AnalysedRun(run, summary))
    assert drawing is not None
    assert "did not pay" in drawing.title
    assert drawing.data["verdict"].tolist() == ["quality was lost"]


@pytest.mark.parametrize("workload", [{}, {"target": {"metric": "accuracy", "at_least": 0.999}}])
def test_a_switch_alone_saved_time_and_nobody_knows_whether_it_paid(
    rehearse: Rehearse, workload: dict[str, Any]
) -> None:
    """No trial went on as before: its model may have been better, and may have missed the target, too."""
    summary = summary_of(rehearse({"switch": RING_TO_ASP}, workload=workload, **STALLING))

    told = " ".join(headline_sentences(summary))

    assert "the switch saved time, because a batch takes" in told
    assert "paid" not in told


def test_what_never_switched_for_its_rule_went_on_as_before(rehearse: Rehearse) -> None:
    """A sweep of the fraction has its lockstep within itself."""
    fractions = {"sweep": {"strategies.switch.fraction": [0.25, 0.5, 1.0]}}
    run = rehearse({"switch": {"kind": "sync_switch", "fraction": 1.0}}, besides=fractions, **STALLING)

    *early, lockstep = summary_of(run).trials

    for each in early:
        assert each.switch is not None
        found = final_model_qualities([(each, lockstep)])
        assert found is not None
        assert each.switch.has_lost_model_quality == found.is_worse_with_switch
        assert each.switch.verdict in ("paid", "quality was lost")


@pytest.mark.parametrize(
    ("ours_s", "theirs_s", "verdict"), [(2.0, 3.0, "paid"), (3.0, 2.0, "did not pay"), (2.0, None, "paid")]
)
def test_on_the_way_to_a_target_who_is_there_first_decides(
    rehearse: Rehearse, ours_s: float, theirs_s: float | None, verdict: str
) -> None:
    """Batches are faster in all three; what staleness costs in samples is in the time to the target."""
    run = rehearse({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, workload={"target": ACCURATE}, **STALLING)
    ring, trial = summary_of(run).trials
    assert trial.switch is not None
    assert trial.switch.before is not None
    needed = trial.switch.before.samples + 1

    found = judge_strategy_switch(
        replace(trial, time_to_target_s=ours_s, samples_to_target=needed),
        replace(ring, time_to_target_s=theirs_s),
        None,
    )

    assert found.verdict == verdict
    assert f"took {format_number(ours_s)} s" in found.quality


@pytest.mark.parametrize(
    ("ours", "theirs_s", "verdict"),
    [(0.95, None, "paid"), (0.5, None, "quality was lost"), (0.95, 2.0, "quality was lost")],
)
def test_a_target_that_is_missed_without_the_switch_too_is_not_lost_by_it(
    rehearse: Rehearse, ours: float, theirs_s: float | None, verdict: str
) -> None:
    """Of two that miss what nobody can learn the better one has lost nothing; beside one that reaches it, it has."""
    target = {"metric": "accuracy", "at_least": 0.999}
    run = rehearse({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, workload={"target": target}, **STALLING)
    ring, trial = summary_of(run).trials
    trial = replace(trial, time_to_target_s=None, final={"accuracy": ours})
    ring = replace(ring, time_to_target_s=theirs_s, final={"accuracy": 0.94})

    found = judge_strategy_switch(trial, ring, final_model_qualities([(trial, ring)]))

    assert found.verdict == verdict
    assert ("accuracy ≥ 0.999 was missed" in found.quality) == (verdict != "paid")


@given(st.lists(st.floats(0.5, 0.95), min_size=2, max_size=6), st.floats(0.02, 0.3))
def test_a_quality_is_worse_where_it_is_so_beyond_what_seeds_make_of_it(theirs: list[float], loss: float) -> None:
    """The same loss by every seed is one; of seeds that differ by more, either way round, it is none."""
    every = [quality - loss for quality in theirs]
    noisy = [quality + loss * (1 if seed % 2 else -1.01) for seed, quality in enumerate(theirs[: len(theirs) // 2 * 2])]

    assert FinalModelQualities("accuracy", tuple(every), tuple(theirs)).is_worse_with_switch
    assert not FinalModelQualities("accuracy", tuple(noisy), tuple(theirs[: len(noisy)])).is_worse_with_switch
    assert not FinalModelQualities("accuracy", tuple(theirs), tuple(every)).is_worse_with_switch
    assert FinalModelQualities("loss", tuple(theirs), tuple(every)).is_worse_with_switch


def test_a_switch_to_a_saturated_server_does_not_pay(rehearse: Rehearse) -> None:
    """Equal workers wait for nobody in a ring either; eight of them queue at a server that answers for four."""
    summary = summary_of(rehearse({"switch": RING_TO_ASP}, workers=8, rate="1mbit"))
    (trial,) = summary.trials

    assert trial.switch is not None
    assert trial.switch.break_even_workers is not None
    assert trial.switch.break_even_workers < 8
    assert trial.switch.saved_s is not None
    assert trial.switch.saved_s < 0
    assert any("did not pay" in sentence for sentence in headline_sentences(summary))


@pytest.mark.parametrize("synchrony", ["bsp", "asp"])
def test_workers_that_became_servers_are_missed_by_no_check(rehearse: Rehearse, synchrony: str) -> None:
    """They report no parameters after the switch and do no steps, and send answers for the steps of the others."""
    placement = {"kind": "promoted", "workers": 2}
    after = {"kind": "parameter_server", "placement": placement, "synchrony": {"kind": synchrony}}
    (trial,) = rehearse({"switch": RING_TO_ASP | {"after": after}}).trials

    assert check_model_replicas_agree(trial).level == VerdictLevel.VALID
    assert expected_bytes_sent(trial) == bytes_sent(trial)
    assert [phase.promoted_workers for phase in training_phases(trial)] == [(), ("worker-2", "worker-3")]
    found = measure_strategy_switch(trial)
    assert found is not None
    assert found.gain is not None
    assert found.gain.shares_s == pytest.approx(-240 / 4 / 1000, rel=0.01)  # from a quarter of 240 to a half
    assert abs(found.gain.straggler_s) < 0.2 * -found.gain.shares_s
    parts = ("shares_s", "straggler_s", "finish_s", "latency_s", "bandwidth_s", "queueing_s")
    assert sum(getattr(found.gain, part) for part in parts) == pytest.approx(found.gain.batch_s)


def test_workers_that_are_done_while_others_are_not_do_not_queue(rehearse: Rehearse) -> None:
    """Equal workers far below what fills the server; the last steps are done by some of them alone."""
    both = {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}
    summary = summary_of(rehearse(both, workers=8, workload={"batch": 128, "epochs": 2}))
    _, trial = summary.trials
    found = trial.switch

    assert found is not None
    assert found.gain is not None
    assert found.break_even_workers is not None
    assert found.break_even_workers > 16
    assert abs(found.gain.queueing_s) < 0.05 * abs(found.gain.batch_s)
    assert found.gain.finish_s == pytest.approx(found.gain.batch_s, rel=0.1)
    assert any(
        "did not pay" in told and "workers finish at different times (-" in told for told in headline_sentences(summary)
    )


def test_waiting_at_a_bound_is_waiting_and_no_queue(rehearse: Rehearse) -> None:
    """After a switch to bounded staleness workers still wait for the slowest, only less."""
    ssp = {"kind": "parameter_server", "synchrony": {"kind": "ssp", "staleness": 1}}
    (trial,) = rehearse({"switch": RING_TO_ASP | {"after": ssp}}, **STALLING).trials
    assert trial.switch_record is not None
    later = trial.steps[trial.steps["start_s"] >= trial.switch_record.second_strategy_start_s]

    found = measure_strategy_switch(trial)

    assert found is not None
    assert found.gain is not None
    assert found.gain.straggler_s > 0
    assert later["wait_s"].mean() > 0.1 * later["step_s"].mean()
    assert abs(found.gain.queueing_s) < 0.05 * later["wait_s"].mean()


@pytest.mark.parametrize("idle_s", [0.1, 10.0])
def test_seconds_in_which_nobody_steps_are_nobodys_exchange(rehearse: Rehearse, idle_s: float) -> None:
    """The same steps in a longer trial: only the finish is another."""
    (trial,) = rehearse({"switch": RING_TO_ASP}).trials
    assert trial.seconds is not None

    found, later = (
        measure_strategy_switch(trial),
        measure_strategy_switch(replace(trial, seconds=trial.seconds + idle_s)),
    )

    assert found is not None
    assert found.gain is not None
    assert found.after is not None
    assert later is not None
    assert later.gain is not None
    cost_s = idle_s * trial.plan.batch / found.after.samples
    more = {"finish_s": found.gain.finish_s - cost_s, "batch_s": found.gain.batch_s - cost_s}
    assert vars(later.gain) == pytest.approx({**vars(found.gain), **more})


@pytest.mark.parametrize("kind", ["all_reduce", "parameter_server"])
def test_nobody_finishes_apart_in_lockstep_nor_before_a_switch(rehearse: Rehearse, kind: str) -> None:
    """Who stops first waits within the hand-over."""
    asp = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    strategy = {"kind": "strategy_switch", "before": asp, "after": {"kind": kind}}
    (trial,) = rehearse({"switch": strategy | {"when": {"kind": "at", "fraction": 0.5}}}, **STALLING).trials

    found = measure_strategy_switch(trial)

    assert found is not None
    assert found.before is not None
    assert found.after is not None
    assert found.before.finishing_s == pytest.approx(0.0, abs=1e-9)
    assert found.after.finishing_s < 0.01 * found.after.batch_s


def test_a_switch_that_never_comes_is_said_to_have_never_come(rehearse: Rehearse) -> None:
    """A row that looks like all-reduce must not pass for a switch."""
    run = rehearse({"switch": {"kind": "strategy_switch"}})

    summary = summary_of(run)

    assert summary.trials[0].switch is not None
    assert summary.trials[0].switch.outcome == "never switched"
    assert any("never switched" in sentence for sentence in headline_sentences(summary))
    drawing = draw_time_saved_by_switch(AnalysedRun(run, summary))
    assert drawing is not None
    assert "never switched" in drawing.title


def rewritten(tmp_path: Path, edit: Callable[[str], str]) -> AnalysedRun:
    """The run again, its coordinator's log edited."""
    (log,) = tmp_path.glob("trials/*/logs/coordinator.log")
    log.write_text(edit(log.read_text()))
    run = read_readable_trials(RunFolder(tmp_path))
    return AnalysedRun(run, summary_of(run))


def test_a_garbled_record_is_not_told_as_a_switch_that_never_came(rehearse: Rehearse, tmp_path: Path) -> None:
    rehearse({"switch": RING_TO_ASP})

    run = rewritten(tmp_path, lambda text: "".join(line[:40] + "\n" for line in text.splitlines()))

    assert run.summary.trials[0].switch is None
    assert draw_time_saved_by_switch(run) is None
    assert not any("never switched" in sentence for sentence in headline_sentences(run.summary))


def test_a_switch_that_only_workers_tell_of_is_damage(rehearse: Rehearse, tmp_path: Path) -> None:
    """The coordinator's line of it is lost, and the rest can be read."""
    rehearse({"switch": RING_TO_ASP})

    run = rewritten(
        tmp_path,
        lambda text: "".join(line for line in text.splitlines(keepends=True) if '"switch_committed"' not in line),
    )

    (told,) = run.summary.damage[-1:]
    assert "logs/coordinator.log: no switch_committed or switch_aborted event, but " in told
    assert draw_time_saved_by_switch(run) is None


@pytest.mark.parametrize("key", ["step", "samples", "seconds", "loaded"])
def test_a_switch_whose_record_lacks_a_number_is_damage_and_no_end_of_the_report(rehearse: Rehearse, key: str) -> None:
    """As another version may have written it; what computes with it would fail."""
    (trial,) = rehearse({"switch": RING_TO_ASP}).folder.trial_folders
    log = trial.log_path("coordinator")
    lines = log.read_text().splitlines(keepends=True)
    (row,) = (place for place, line in enumerate(lines) if '"switch_committed"' in line)
    lines[row] = lines[row].replace(f'"{key}": ', '"another": ')
    log.write_text("".join(lines))

    found = analyse_trial(trial)

    assert isinstance(found, FileDamage)
    assert "logs: cannot be interpreted (KeyError at analysis/reading/switch_record.py:" in str(found)
    assert f"'{key}'" in str(found)


def test_the_table_prints_the_step_that_is_compared(rehearse: Rehearse) -> None:
    """A median of two strategies is one of them: the mean is held against the form of both, and is what is printed."""
    run = rehearse({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)

    summary = summary_of(run)
    text = render_report_page(run.folder, summary, [])

    for trial in summary.trials:
        assert trial.measured_step_seconds is not None
        assert trial.predicted_step_seconds is not None
        assert trial.unpredicted_step_share == pytest.approx(
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
def test_checks_know_the_two_phases(rehearse: Rehearse, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Bytes, replicas and closed forms hold for each strategy by itself, and for the hand-over between them."""
    strategy = {"kind": "strategy_switch", "before": before, "after": after, "when": {"kind": "at", "fraction": 0.5}}
    (trial,) = rehearse({"switch": strategy}).trials

    verdicts = [check(trial) for check in (check_bytes_sent, check_model_replicas_agree, check_host_overhead)]

    assert [verdict.level for verdict in verdicts] == [VerdictLevel.VALID] * 3, verdicts
    assert [phase.name for phase in training_phases(trial)] == ["before", "after"]


def test_bytes_of_a_hand_over_that_was_aborted_are_no_error(rehearse: Rehearse) -> None:
    """The server's link fails while it is given its model: the giver's bytes are on the way, and everybody goes on."""
    gone = {"kind": "link", "at": {"time": "1200ms"}, "of": ["server-0"], "downlink": "1kbit", "lasts": "600s"}
    besides = {"events": [gone], "timeouts": {"step": "3s"}}
    switch_late = RING_TO_ASP | {"when": {"kind": "at", "step": 29}}
    workload = {"batch": 50, "epochs": 2, "stop": "budget"}
    run = rehearse({"switch": switch_late}, 3, workload=workload, besides=besides, throughput="400/s")
    (trial,) = run.trials

    assert trial.switch_record is not None
    assert trial.switch_record.abort_reason
    assert sum(trial.switch_record.transfer_bytes_sent.values()) > 0.02 * bytes_sent(trial)["worker-0"]
    assert expected_bytes_sent(trial) == bytes_sent(trial)
    assert check_bytes_sent(trial).level == VerdictLevel.VALID


@pytest.mark.parametrize(
    ("node", "given", "sent", "level"),
    [
        ("worker-0", 0, 200, VerdictLevel.VALID),
        ("worker-0", 30, 230, VerdictLevel.VALID),
        ("worker-0", 30, 200, VerdictLevel.INVALID),  # what it says that it gave it must have sent
        ("worker-0", 30, 270, VerdictLevel.INVALID),
        ("worker-0", 70, 270, VerdictLevel.INVALID),  # more than was to be handed over
        ("server-0", 0, 200, VerdictLevel.VALID),  # servers don't tell how far they came
        ("server-0", 0, 230, VerdictLevel.VALID),
        ("server-0", 0, 250, VerdictLevel.VALID),
        ("server-0", 0, 270, VerdictLevel.INVALID),
        ("server-0", 0, 150, VerdictLevel.INVALID),
    ],
)
def test_of_an_aborted_hand_over_no_more_may_be_sent_than_was_planned(
    make_trial: Callable[..., TrialTable],
    line: Callable[..., str],
    steps_line: Callable[..., str],
    stop_line: Callable[..., str],
    node: str,
    given: int,
    sent: int,
    level: VerdictLevel,
) -> None:
    """Fifty bytes by a node that sends a hundred a step."""
    told = {"verb": "abort", "seconds": 1.0, "bytes_sent": given, "messages_sent": 1}
    worker = [steps_line([{}, {}], "worker-0"), line("node_switch", told, node="worker-0")]
    logs = {
        "coordinator": [line("switch_aborted", {"reason": "late"})],
        "worker-0": [*worker, stop_line("worker-0", payload_bytes_sent=sent if node == "worker-0" else 0)],
        "server-0": [stop_line("server-0", payload_bytes_sent=sent if node == "server-0" else 0)],
    }
    others = {"worker-0": 0, "server-0": 0}
    trial = make_trial(
        logs, servers=1, bytes_per_step=others | {node: 100}, second_phase={"hand_over_bytes": others | {node: 50}}
    )

    assert check_bytes_sent(trial).level == level


def test_every_phase_is_held_against_its_own_closed_form(rehearse: Rehearse) -> None:
    """One median over both would compare a ring's steps with a server's form."""
    run = rehearse({"switch": RING_TO_ASP})

    drawing = draw_predicted_steps(AnalysedRun(run, summary_of(run)))

    assert drawing is not None
    assert list(drawing.data["phase"]) == ["before", "after"]
    assert drawing.data["remainder"].abs().max() < 0.05


@pytest.mark.parametrize("servers", [1, 2])
def test_the_break_even_is_the_plans(rehearse: Rehearse, servers: int) -> None:
    """n* = s·(t_c·B/S + 2), and s·(t_c·B/S + 1) + 1 where several servers answer in turn what is one message each."""
    after = {"kind": "parameter_server", "servers": servers, "synchrony": {"kind": "asp"}}
    (trial,) = rehearse({"switch": RING_TO_ASP | {"after": after}}, rate="10mbit").trials
    planned, found = trial.plan, measure_strategy_switch(trial)

    assert found is not None
    computed = planned.predicted.compute_s * goodput_bytes_per_s(10e6) / planned.vector_bytes
    one_message_each = servers * (computed + 1) + 1
    assert found.break_even_workers == pytest.approx(computed + 2 if servers == 1 else one_message_each, rel=1e-3)


def test_no_number_of_workers_saturates_servers_that_are_workers(rehearse: Rehearse) -> None:
    after = {"kind": "parameter_server", "placement": {"kind": "colocated"}, "synchrony": {"kind": "asp"}}
    (trial,) = rehearse({"switch": RING_TO_ASP | {"after": after}}, rate="10mbit").trials

    assert trial.plan.saturation_workers is None


def test_a_switch_before_the_first_step_has_nothing_to_compare_with(rehearse: Rehearse) -> None:
    """There is no batch before it."""
    (trial,) = rehearse({"switch": RING_TO_ASP | {"when": {"kind": "at", "step": 0}}}).trials

    found = measure_strategy_switch(trial)

    assert found is not None
    assert (found.outcome, found.gain, found.share) == ("switched", None, 0.0)


def test_a_switch_forced_before_its_window_was_full_has_no_value(rehearse: Rehearse) -> None:
    """What the rule found at later points, when it only goes on looking, is not why it fired."""
    rule = {"kind": "plateau", "window": 3, "force_at": 1}
    (trial,) = rehearse({"switch": RING_TO_ASP | {"when": rule}}).trials

    found = measure_strategy_switch(trial)

    assert found is not None
    assert (found.outcome, found.value) == ("switched", None)
    assert trial.switch_record is not None
    assert any(point["value"] is not None for point in trial.switch_record.rule_points)


def test_only_switches_that_can_be_judged_are_counted_as_paying_or_not(rehearse: Rehearse) -> None:
    run = rehearse({"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP}, **STALLING)
    _, trial = summary_of(run).trials
    assert trial.switch is not None
    paid = replace(trial.switch, verdict="paid")
    early, lost = replace(paid, gain=None, verdict="unknown"), replace(paid, verdict="quality was lost")

    assert describe_switch_outcomes([paid, early]) == ""
    assert describe_switch_outcomes([paid, early, lost]) == "it paid in 1 of 2"


def test_what_staleness_costs_is_what_more_samples_to_the_target_take(rehearse: Rehearse) -> None:
    """Beside a trial with the same seed that stayed with the strategy before."""
    both = {"ring": {"kind": "all_reduce"}, "switch": RING_TO_ASP | {"when": {"kind": "at", "step": 2}}}
    run = rehearse(both, workload={"target": ACCURATE, "epochs": 12}, **STALLING)

    ring, trial = (summary := summary_of(run)).trials
    found = trial.switch

    assert found is not None
    assert found.before is not None
    assert found.after is not None
    assert found.stale_s is not None
    assert trial.samples_to_target is not None
    assert ring.samples_to_target is not None
    batches_after = (trial.samples_to_target - found.before.samples) / run.trials[0].plan.batch
    more_s = found.stale_s * batches_after  # of the whole trial
    more = trial.samples_to_target - ring.samples_to_target
    assert more != 0
    assert more_s == pytest.approx(more / run.trials[0].plan.batch * found.after.batch_s)
    drawing = draw_time_saved_by_switch(AnalysedRun(run, summary))
    assert drawing is not None
    assert drawing.data["stale_s"].tolist() == [found.stale_s]


def test_without_a_trial_that_stayed_staleness_is_not_told(rehearse: Rehearse) -> None:
    """A switch alone knows what a batch costs, not how many it would have taken."""
    (trial,) = summary_of(rehearse({"switch": RING_TO_ASP}, workload={"target": ACCURATE}, **STALLING)).trials

    assert trial.switch is not None
    assert trial.switch.has_switched
    assert trial.switch.stale_s is None


@pytest.fixture
def switched(rehearse: Rehearse) -> StrategySwitchResult:
    """One that switched halfway."""
    found = measure_strategy_switch(rehearse({"switch": RING_TO_ASP}).trials[0])
    assert found is not None
    return found


def test_a_batch_that_takes_as_long_as_before_has_no_cause(switched: StrategySwitchResult) -> None:
    """\"100 ms instead of 100 ms\", because nobody waits, is no reason for anything."""
    assert switched.before is not None
    alike = replace(switched, after=switched.before, saved_s=-0.01, verdict="did not pay")

    text = describe_strategy_switch(alike, 4)

    assert text.startswith("the switch did not pay: a batch takes ")
    assert text.endswith(" ms as before")


def test_long_batches_are_told_in_digits(switched: StrategySwitchResult) -> None:
    """Two seconds are 2,000 ms, not 2e+03."""
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


def test_a_switch_after_which_nothing_came_was_not_before_the_first_step(switched: StrategySwitchResult) -> None:
    assert "after the last step" in describe_strategy_switch(replace(switched, after=None, gain=None, saved_s=None), 4)
    assert "before the first step" in describe_strategy_switch(
        replace(switched, before=None, gain=None, saved_s=None), 4
    )


def test_a_switch_is_told_of_one_repeat_or_of_the_median_of_several(rehearse: Rehearse) -> None:
    """A batch that takes 60 ms instead of 115 in one run of five is no finding about the five."""
    summary = summary_of(rehearse({"switch": RING_TO_ASP}))
    again = replace(summary.trials[0], id="again", repeat=1)

    once, twice = (
        headline_sentences(replace(summary, trials=trials)) for trials in (summary.trials, [*summary.trials, again])
    )

    assert any("a batch takes" in sentence and sentence.endswith("(one repeat).") for sentence in once)
    assert any("a batch takes" in sentence and "(the median of 2 repeats" in sentence for sentence in twice)
