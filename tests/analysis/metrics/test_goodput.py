"""Goodput: which seconds of the workers count, what the others went into, and when goodput is not measured."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import jsonschema
import pytest

from analysis.metrics.goodput import (
    LOST_RECORDS,
    NO_END,
    NO_STEPS,
    NO_TIME,
    WORKERS_BECOME_SERVERS,
    Goodput,
    list_node_losses,
    measure_goodput,
)
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.results.analyse_run import analyse_run
from analysis.results.data_frames import make_trial_frame
from tests.support.json_schema import find_subschema

MakeTrial = Callable[..., TrialLogTables]
Line = Callable[..., str]
ASYNCHRONOUS = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
SHARE_NAMES = [field.name for field in fields(Goodput) if field.name != "reason"]


@pytest.fixture
def goodput_trial(make_trial: MakeTrial, steps_line: Line, line: Line) -> MakeTrial:
    """Makes a trial of 10 s.

    `rows` are (step, start, duration) by worker, `events` (node, key, value, time) in the order of the log.
    """

    def make(
        rows: dict[str, Any], events: list[Any] = (), seconds: float | None = 10.0, **planned: Any
    ) -> TrialLogTables:  # type: ignore[assignment]
        logs: dict[str, list[str]] = {"coordinator": [line("run_start", time_s=0.0)]}
        for node, key, value, time_s, *metadata in events:
            named = "" if node == "coordinator" else node
            logs.setdefault(node, []).append(line(key, value, time_s, named, **(metadata[0] if metadata else {})))
        for worker, steps in rows.items():
            table = [{"step": step, "start_s": start_s, "step_s": step_s} for step, start_s, step_s in steps]
            logs.setdefault(worker, []).append(steps_line(table, worker))
        if seconds is not None:
            logs["coordinator"].append(line("run_stop", time_s=seconds))
        nodes = [{"name": f"worker-{rank}", "role": "worker", "rank": rank} for rank in range(len(rows))]
        return make_trial(logs, {"status": "failed"}, **({"workers": len(rows), "nodes": nodes} | planned))

    return make


def evaluation(step: int, start_s: float, end_s: float) -> list[Any]:
    """Events of an evaluation."""
    return [
        ("coordinator", "eval_start", None, start_s),
        ("coordinator", "eval_metrics", {"loss": 1.0}, end_s, {"step": step, "samples_count": step}),
        ("coordinator", "eval_stop", None, end_s),
    ]


def loss_of(node: str, time_s: float, silent_s: float) -> tuple[Any, ...]:
    return "coordinator", "node_lost", {"node": node, "reason": "no heartbeat", "silent_s": silent_s}, time_s


def epoch_of(number: int, workers: list[str], time_s: float, cause: str = "lost") -> tuple[Any, ...]:
    return "coordinator", "membership_epoch", {"epoch": number, "workers": workers, "cause": cause}, time_s


def recovery_of(node: str, number: int, first_step: int, time_s: float, seconds: float) -> tuple[Any, ...]:
    return node, "recovery", {"epoch": number, "seconds": seconds}, time_s, {"step": first_step}


def shares_of(trial: TrialLogTables) -> dict[str, float]:
    """The shares that are not zero; together they are 1."""
    goodput = measure_goodput(trial)
    shares = {name: getattr(goodput, name) for name in SHARE_NAMES}
    assert sum(shares.values()) == pytest.approx(1.0)
    return {name: pytest.approx(share) for name, share in shares.items() if share > 1e-12}


def test_without_failures_only_unexplained_time_is_missing(goodput_trial: MakeTrial) -> None:
    """Steps and evaluations are useful; the second before the first step is not explained."""
    rows = {"worker-0": [(0, 1.0, 4.0), (1, 5.0, 4.0)]}

    assert shares_of(goodput_trial(rows, evaluation(2, 9.0, 10.0))) == {"share": 0.9, "other": 0.1}


def test_an_evaluation_beside_a_step_counts_once(goodput_trial: MakeTrial) -> None:
    """Asynchronous workers go on while the coordinator evaluates."""
    rows = {"worker-0": [(0, 0.0, 6.0)], "worker-1": [(0, 0.0, 4.0)]}

    trial = goodput_trial(rows, evaluation(1, 4.0, 6.0), strategy=ASYNCHRONOUS)

    assert shares_of(trial) == {"share": 0.6, "other": 0.4}


def test_evaluations_before_the_start_do_not_count(goodput_trial: MakeTrial) -> None:
    assert shares_of(goodput_trial({"worker-0": [(0, 0.0, 10.0)]}, evaluation(0, -5.0, -1.0))) == {"share": 1.0}


def test_restored_training_loses_the_repeated_steps(goodput_trial: MakeTrial) -> None:
    """A worker dies at 3 s, is lost at 4 s, and both continue at 6 s from step 1: steps 1 and 2 are lost."""
    both = ["worker-0", "worker-1"]
    steps = [(0, 0.0, 1.0), (1, 1.0, 1.0), (1, 6.0, 1.0), (2, 7.0, 1.0), (3, 8.0, 2.0)]
    events = [loss_of("worker-1", 4.0, 1.0), epoch_of(1, both, 5.0)]
    events += [recovery_of(name, 1, 1, 6.0, 1.0) for name in both]

    trial = goodput_trial(dict.fromkeys(both, steps), events)

    assert shares_of(trial) == {"share": 0.5, "lost_steps": 0.2, "detection": 0.1, "recovery": 0.2}
    (loss,) = list_node_losses(trial)
    assert (loss.node, loss.time_s, loss.detection_s) == ("worker-1", 4.0, 1.0)
    assert (loss.epoch, loss.workers, loss.first_step) == (1, 2, 1)
    assert (loss.recovery_s, loss.lost_s) == (pytest.approx(2.0), pytest.approx(5.0))


def test_a_lost_worker_is_absent_while_the_others_continue(goodput_trial: MakeTrial) -> None:
    """Of two workers, one trains from 4 s on: half of the remaining time is absence; worker-1's step 1 is repeated."""
    rows = {
        "worker-0": [(0, 0.0, 1.0), (1, 1.0, 1.0), (1, 4.0, 2.0), (2, 6.0, 4.0)],
        "worker-1": [(0, 0.0, 1.0), (1, 1.0, 1.0)],
    }
    events = [loss_of("worker-1", 3.0, 1.0), epoch_of(1, ["worker-0"], 4.0), recovery_of("worker-0", 1, 1, 4.0, 0.0)]

    shares = shares_of(goodput_trial(rows, events))

    assert shares == {"share": 8 / 20, "lost_steps": 2 / 20, "detection": 2 / 20, "recovery": 2 / 20, "absence": 6 / 20}


def test_a_worker_that_joins_again_is_absent_only_in_between(goodput_trial: MakeTrial) -> None:
    both = ["worker-0", "worker-1"]
    rows = {
        "worker-0": [(0, 0.0, 2.0), (1, 4.0, 2.0), (2, 7.0, 3.0)],
        "worker-1": [(0, 0.0, 2.0), (2, 7.0, 3.0)],
    }
    events = [loss_of("worker-1", 3.0, 1.0), epoch_of(1, ["worker-0"], 4.0), recovery_of("worker-0", 1, 1, 4.0, 0.0)]
    events += [epoch_of(2, both, 6.0), *(recovery_of(name, 2, 2, 7.0, 1.0) for name in both)]

    shares = shares_of(goodput_trial(rows, events))

    assert shares == {"share": 12 / 20, "detection": 2 / 20, "recovery": 4 / 20, "absence": 2 / 20}


def test_steps_of_asynchronous_workers_during_detection_count(goodput_trial: MakeTrial) -> None:
    """The server answers the other workers meanwhile, so detection costs only the time of the lost worker."""
    rows = {"worker-0": [(step, float(step), 1.0) for step in range(10)], "worker-1": [(0, 0.0, 1.0), (1, 1.0, 1.0)]}
    events = [loss_of("worker-1", 4.0, 2.0), epoch_of(1, ["worker-0"], 4.0)]

    shares = shares_of(goodput_trial(rows, events, strategy=ASYNCHRONOUS))

    assert shares == {"share": 12 / 20, "detection": 2 / 20, "absence": 6 / 20}


def test_a_checkpoint_is_no_useful_time_whether_inside_or_between_steps(goodput_trial: MakeTrial) -> None:
    rows = {"worker-0": [(0, 0.0, 4.0), (1, 5.0, 5.0)]}
    write = {"step": 1, "seconds": 1.0, "bytes": 8}

    trial = goodput_trial(rows, [("worker-0", "checkpoint", write, end_s) for end_s in (5.0, 10.0)])

    assert shares_of(trial) == {"share": 0.8, "checkpoints": 0.2}


def test_an_evaluation_that_is_repeated_counts_once(goodput_trial: MakeTrial) -> None:
    rows = {"worker-0": [(0, 0.0, 8.0)]}

    trial = goodput_trial(rows, [*evaluation(1, 8.0, 9.0), *evaluation(1, 9.0, 10.0)])

    assert shares_of(trial) == {"share": 0.9, "lost_steps": 0.1}


def test_nodes_lost_together_share_their_seconds(goodput_trial: MakeTrial) -> None:
    """The seconds are listed once, or a sum over nodes would count them twice."""
    rows = {f"worker-{rank}": [(0, 0.0, 2.0)] for rank in range(3)}
    events = [loss_of("worker-1", 3.0, 1.0), loss_of("worker-2", 3.5, 1.5), epoch_of(1, ["worker-0"], 4.0)]

    first, second = list_node_losses(goodput_trial(rows, events))

    assert (first.lost_s, first.lost_with) == (pytest.approx(2.0), "")
    assert (second.lost_s, second.lost_with) == (None, "worker-1")


def test_a_loss_during_a_recovery_is_recovered_in_the_epoch_that_replaces_the_first(goodput_trial: MakeTrial) -> None:
    """worker-2 is lost before worker-1's loss is overcome: only in epoch 2, both others continue, from step 1."""
    rows = {f"worker-{rank}": [(0, 0.0, 2.0), (1, 6.0, 4.0)] for rank in range(4)}
    events = [loss_of("worker-1", 3.0, 1.0), epoch_of(1, ["worker-0", "worker-2", "worker-3"], 3.0)]
    events += [recovery_of("worker-0", 1, 0, 3.5, 0.5), loss_of("worker-2", 4.5, 1.0)]
    events += [epoch_of(2, ["worker-0", "worker-3"], 5.0)]
    events += [recovery_of(name, 2, 1, 6.0, 1.0) for name in ("worker-0", "worker-3")]

    trial = goodput_trial(rows, events)

    first, second = list_node_losses(trial)
    assert [(each.epoch, each.workers, each.first_step) for each in (first, second)] == [(2, 2, 1)] * 2
    assert (first.recovery_s, second.recovery_s) == (pytest.approx(3.0), pytest.approx(1.5))
    assert (second.lost_s, second.lost_with) == (None, "worker-1")
    goodput = measure_goodput(trial)
    parts = (goodput.lost_steps or 0.0) + (goodput.detection or 0.0) + (goodput.recovery or 0.0)
    assert first.lost_s == pytest.approx(10.0 * parts)


def test_a_recovery_that_never_ends_has_no_time(goodput_trial: MakeTrial) -> None:
    """Training did not go on in the epoch, so the time of the epoch is no end of a recovery."""
    rows = {f"worker-{rank}": [(0, 0.0, 2.0)] for rank in range(2)}
    events = [loss_of("worker-1", 3.0, 1.0), epoch_of(1, ["worker-0"], 4.0)]

    (synchronous,) = list_node_losses(goodput_trial(rows, events, seconds=None))
    (asynchronous,) = list_node_losses(goodput_trial(rows, events, strategy=ASYNCHRONOUS))

    assert (synchronous.first_step, synchronous.recovery_s) == (None, None)
    assert (synchronous.epoch, synchronous.workers) == (None, None)
    assert (asynchronous.epoch, asynchronous.workers) == (1, 1)
    assert asynchronous.recovery_s == pytest.approx(1.0)


@pytest.mark.parametrize("has_joined", [True, False])
def test_a_lost_node_is_a_member_again_when_an_epoch_has_it(goodput_trial: MakeTrial, has_joined: bool) -> None:
    """Until its loss is noticed, a node is listed as a worker, so the returned nodes decide if they are logged."""
    both, rows = ["worker-0", "worker-1"], {f"worker-{rank}": [(0, 0.0, 2.0)] for rank in range(2)}

    def epoch(number: int, joined: list[str], time_s: float, workers: list[str]) -> tuple[Any, ...]:
        node, key, value, _ = epoch_of(number, workers, time_s)
        return node, key, value | ({"joined": joined} if has_joined else {}), time_s

    lost, returned = epoch(1, [], 4.0, both if has_joined else ["worker-0"]), epoch(2, ["worker-1"], 7.0, both)

    (loss,) = list_node_losses(goodput_trial(rows, [loss_of("worker-1", 3.0, 1.0), lost, returned]))
    assert loss.member_again_s == pytest.approx(7.0)
    (loss,) = list_node_losses(goodput_trial(rows, [loss_of("worker-1", 3.0, 1.0), lost]))
    assert loss.member_again_s is None


def test_a_loss_that_ends_the_training_has_no_epoch(goodput_trial: MakeTrial) -> None:
    trial = goodput_trial({"worker-0": [(0, 0.0, 2.0)]}, [loss_of("worker-0", 3.0, 1.0)], seconds=None)

    (loss,) = list_node_losses(trial)

    assert (loss.epoch, loss.recovery_s, loss.lost_s) == (None, None, None)
    assert measure_goodput(trial) == Goodput(None, reason=NO_END)


def test_without_steps_or_time_goodput_is_not_measured(goodput_trial: MakeTrial, make_trial: MakeTrial) -> None:
    """A share of nothing would be a number without a measurement."""
    assert measure_goodput(make_trial({"worker-0": []})) == Goodput(None, reason=NO_STEPS)
    assert measure_goodput(goodput_trial({"worker-0": [(0, 0.0, 0.0)]}, seconds=0.0)) == Goodput(None, reason=NO_TIME)


def test_workers_that_become_servers_have_no_steps_to_measure(goodput_trial: MakeTrial) -> None:
    """As a server, a worker is useful without steps."""
    rows = {f"worker-{rank}": [(0, 0.0, 2.0)] for rank in range(2)}

    trial = goodput_trial(rows, second_phase={"worker_weights": [1, 0]})

    assert measure_goodput(trial) == Goodput(None, reason=WORKERS_BECOME_SERVERS)


def test_damaged_logs_are_not_measured(make_trial: MakeTrial, steps_line: Line, line: Line) -> None:
    """Lost lines would look like lost time."""
    nodes = [{"name": "worker-0", "role": "worker", "rank": 0}]
    logs = {
        "coordinator": [line("run_start"), line("run_stop", time_s=2.0)],
        "worker-0": [steps_line([{}], "worker-0"), ":::MLLOG {"],
    }

    assert measure_goodput(make_trial(logs, nodes=nodes)) == Goodput(None, reason=LOST_RECORDS)


def test_missing_lines_of_a_lost_worker_are_no_damage(make_trial: MakeTrial, steps_line: Line, line: Line) -> None:
    """A killed process can't write its last lines; workers that go back log more steps than they count."""
    names = ["worker-0", "worker-1"]
    nodes = [{"name": name, "role": "worker", "rank": rank} for rank, name in enumerate(names)]
    lost = line("node_lost", {"node": "worker-1", "reason": "", "silent_s": 1.0}, 3.0)
    epoch = line("membership_epoch", {"epoch": 1, "workers": ["worker-0"], "cause": "lost"}, 3.0)
    stop = line("node_stop", {"payload_bytes_sent": 0, "steps": 1}, 9.0, "worker-0")
    logs = {
        "coordinator": [line("run_start"), lost, epoch, line("run_stop", time_s=9.0)],
        "worker-0": [steps_line([{}, {"step": 0}], "worker-0"), stop],
        "worker-1": [steps_line([{}], "worker-1")],
    }

    assert not make_trial(logs, nodes=nodes, workers=2).damage
    logs["coordinator"] = [line("run_start"), line("run_stop", time_s=9.0)]
    assert len(make_trial(logs, nodes=nodes, workers=2).damage) == 2


@pytest.mark.parametrize("strategy", [{"kind": "all_reduce"}, ASYNCHRONOUS])
def test_undisturbed_training_spends_nearly_all_of_its_time_on_steps(
    run_simulated: Callable[..., RunLogTables], strategy: dict[str, Any]
) -> None:
    """Whatever the strategy, no time may be attributed to failures that did not happen."""
    (trial,) = run_simulated({"s": strategy}).trials

    shares = shares_of(trial)

    assert set(shares) <= {"share", "other"}
    assert (measure_goodput(trial).share or 0.0) > 0.95


def test_summary_and_table_have_the_goodput(make_run: Callable[..., RunFolder], pytestconfig: pytest.Config) -> None:
    """The table shows it only if the scenario declares failures: elsewhere it says nothing about the strategies."""
    _, summary = analyse_run(make_run(strategies=("ring",), workers=(2,), baseline=False))
    assert not make_strategy_table(summary).has_goodput
    (trial,) = summary.trials
    losing = replace(trial, failure_policy="restore", goodput=replace(trial.goodput, share=0.75))
    unmeasured = replace(losing, goodput=Goodput(None, reason=NO_END))

    summary = replace(summary, trials=[losing])

    assert [row.goodput for row in make_strategy_table(summary).rows] == ["75.0%"]
    assert make_strategy_table(replace(summary, trials=[unmeasured])).rows[0].goodput == "not measured"
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(summary.as_dict())), schema)
    assert make_trial_frame(summary.as_dict())["goodput"].tolist() == [0.75]


def test_node_losses_conform_to_the_schema(goodput_trial: MakeTrial, pytestconfig: pytest.Config) -> None:
    """With and without a membership epoch after the loss."""
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    losses_schema = find_subschema(schema, "node_losses")
    rows = {f"worker-{rank}": [(0, 0.0, 2.0)] for rank in range(2)}
    for events in ([loss_of("worker-1", 3.0, 1.0), epoch_of(1, ["worker-0"], 4.0)], [loss_of("worker-1", 3.0, 1.0)]):
        losses = [vars(loss) for loss in list_node_losses(goodput_trial(rows, events))]
        assert losses
        jsonschema.validate(losses, losses_schema)
