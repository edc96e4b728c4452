"""Trials in virtual time that lose workers: they go on by their policy, with exactly the samples of the budget.

Virtual time reports a deadlock as an error, so a trial can't hang.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recovering_trial import RecoveringTrial

from services.checkpoints.folder import CheckpointFolder, CompleteCheckpoint
from services.coordinator.model_evaluation import ModelEvaluator
from services.node.simulate import InProcessCoordinatorClient
from services.plan import COORDINATOR
from services.runtime.membership_follower import MembershipFollower
from services.runtime.run_log import STEP_COLUMNS
from services.schema.errors import DeclaredNodeLoss, PeerUnreachable

ERROR_FEEDBACK = {"kind": "error_feedback", "inner": {"kind": "top_k", "ratio": 0.1}}
SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "ring": {"kind": "all_reduce"},
    "tree": {"kind": "all_reduce", "collective": {"kind": "tree"}},
    "buckets": {"kind": "all_reduce", "overlap": {"kind": "buckets"}},
    "error feedback": {"kind": "all_reduce", "compress": ERROR_FEEDBACK},
    "power_sgd": {"kind": "all_reduce", "compress": {"kind": "power_sgd"}},
    "bsp": {"kind": "parameter_server", "servers": 2},
    "local_sgd": {"kind": "local_sgd", "period": 3},
    "diloco": {"kind": "diloco", "period": 3},
}
ASYNCHRONOUS: dict[str, dict[str, Any]] = {
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
    "ssp": {"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "ssp", "staleness": 2}},
    "gba": {"kind": "parameter_server", "synchrony": {"kind": "gba", "gather": 2}},
    "backup": {"kind": "parameter_server", "synchrony": {"kind": "backup", "backups": 1}},
    "easgd": {"kind": "easgd", "period": 2},
}
CONTINUE = SYNCHRONOUS | ASYNCHRONOUS | {"d_psgd": {"kind": "d_psgd"}}
KEEPS_RESIDUALS = ("error feedback", "power_sgd")  # such a worker can't join again
REJOIN = {name: strategy for name, strategy in SYNCHRONOUS.items() if name not in KEEPS_RESIDUALS}
RESTORE = {"on_failure": "restore", "restart_delay": "200ms", "checkpoint": {"steps": 6}}
LOSSES: dict[str, list[tuple[str, float]]] = {  # moments in virtual seconds; a step takes about 25 ms
    "a worker": [("worker-1", 0.43)],
    "the evaluation worker": [("worker-0", 0.41)],
    "two workers at once": [("worker-0", 0.41), ("worker-3", 0.43)],
    "a further worker during the detection": [("worker-2", 0.3), ("worker-0", 1.9)],
    "a worker after another recovery": [("worker-2", 0.3), ("worker-0", 3.3)],
    "a worker at the end": [("worker-2", 0.93)],
}


@pytest.fixture(scope="module")
def undisturbed_params_sha256(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that gives the digest of the parameters after training without losses, by strategy."""

    @cache
    def run(name: str) -> str:
        folder = tmp_path_factory.mktemp("undisturbed")
        return RecoveringTrial.run(SYNCHRONOUS[name], RESTORE, [], folder).params_sha256

    return run


def kills(losses: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"kind": "kill", "of": [node], "at": {"time": f"{seconds}s"}} for node, seconds in losses]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CONTINUE)
def test_training_continues_without_lost_workers_and_uses_exactly_its_budget(
    name: str, loss: str, tmp_path: Path
) -> None:
    """Every sample of the budget is used once: no batch of a lost worker is missing, and none is counted twice."""
    trial = RecoveringTrial.run(CONTINUE[name], {"on_failure": "continue"}, kills(LOSSES[loss]), tmp_path)

    assert trial.stop_reason == "budget used"
    assert trial.samples == trial.budget
    lost = {node for node, seconds in LOSSES[loss] if seconds < trial.seconds}
    assert lost.issuperset(trial.lost_nodes)
    if trial.epochs:
        assert set(trial.epochs[-1]["workers"]) == {f"worker-{k}" for k in range(4)} - set(trial.lost_nodes)
    assert trial.has_equal_replicas_at_evaluations or name not in ("ring", "tree", "buckets", "bsp")


@pytest.mark.parametrize("policy", ["continue", "rejoin"])
@pytest.mark.parametrize("name", ["ring", "bsp", "local_sgd"])
@pytest.mark.parametrize("delayed_call", ["leave", "await_membership"])
def test_a_worker_that_wants_to_leave_takes_part_in_a_recovery(
    delayed_call: str, name: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker 0 has finished its work when another worker is lost; worker 2 still waits for the last reply.

    Worker 0 has not left, or learns of the new membership only after the coordinator has received its call.
    """
    recovery = {"on_failure": policy, "heartbeat_timeout": "100ms", "restart_delay": "100ms"}
    undisturbed = RecoveringTrial.run(SYNCHRONOUS[name], recovery, [], tmp_path / "0")
    end_s = undisturbed.seconds
    report_evaluation_point = InProcessCoordinatorClient.report_evaluation_point
    leave, await_membership = InProcessCoordinatorClient.leave, InProcessCoordinatorClient.await_membership

    async def sleep(client: InProcessCoordinatorClient, seconds: float) -> None:
        await client.runtime.clock.sleep_until(client.runtime.clock.now() + seconds)

    async def receive_last_reply_late(client: InProcessCoordinatorClient, report: Any) -> Any:
        reply = await report_evaluation_point(client, report)
        if client.node_name == "worker-2" and report.steps == client.runtime.plan.steps:
            await sleep(client, 1.0)
        return reply

    async def leave_late(client: InProcessCoordinatorClient, report: Any) -> None:
        await sleep(client, 0.4)
        await leave(client, report)

    async def learn_of_membership_late(client: InProcessCoordinatorClient, known_epoch: int) -> Any:
        membership = await await_membership(client, known_epoch)
        if client.node_name == "worker-0" and delayed_call == "await_membership" and membership.epoch == 1:
            await sleep(client, 0.4)
        return membership

    monkeypatch.setattr(InProcessCoordinatorClient, "report_evaluation_point", receive_last_reply_late)
    monkeypatch.setattr(InProcessCoordinatorClient, "leave", leave_late)
    monkeypatch.setattr(InProcessCoordinatorClient, "await_membership", learn_of_membership_late)

    trial = RecoveringTrial.run(SYNCHRONOUS[name], recovery, kills([("worker-1", end_s)]), tmp_path / "1")

    assert trial.epochs
    assert trial.samples == trial.budget


def test_a_worker_that_has_left_is_not_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 0 has left, and waits for the reply, when the workers that still need each other lose another one."""
    strategy, recovery = CONTINUE["d_psgd"], {"on_failure": "continue", "heartbeat_timeout": "100ms"}
    undisturbed = RecoveringTrial.run(strategy, recovery, [], tmp_path / "0")
    leave = InProcessCoordinatorClient.leave

    async def leave_late(client: InProcessCoordinatorClient, report: Any) -> None:
        clock, end_s = client.runtime.clock, client.runtime.clock.now() + 1.0
        if client.node_name != "worker-0":
            await clock.sleep_until(end_s)
        await leave(client, report)
        await clock.sleep_until(end_s)

    monkeypatch.setattr(InProcessCoordinatorClient, "leave", leave_late)

    trial = RecoveringTrial.run(strategy, recovery, kills([("worker-1", undisturbed.seconds)]), tmp_path / "1")

    (epoch,) = trial.epochs
    assert epoch["workers"] == ["worker-2", "worker-3"]
    assert trial.lost_nodes == ["worker-1"]
    assert trial.events("worker-0", "node_stop")


@pytest.mark.parametrize("name", ["asp", "ssp", "gba", "backup"])
def test_a_loss_that_is_noticed_during_an_evaluation_leaves_no_worker_without_a_reply(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asynchronous workers do not report again after the change of the membership: the one that waits must be answered.

    An evaluation takes no virtual time by itself.
    """
    measure_quality, periods_ms = ModelEvaluator.measure_quality, list[tuple[float, float]]()

    async def measure_slowly(evaluator: ModelEvaluator, *arguments: Any) -> dict[str, float]:
        begin_ms = evaluator.clock.timestamp_ms()
        await evaluator.clock.sleep_until(evaluator.clock.now() + 1.0)
        periods_ms.append((begin_ms, evaluator.clock.timestamp_ms()))
        return await measure_quality(evaluator, *arguments)

    monkeypatch.setattr(ModelEvaluator, "measure_quality", measure_slowly)
    recovery = {"on_failure": "continue", "heartbeat_timeout": "200ms"}

    trial = RecoveringTrial.run(ASYNCHRONOUS[name], recovery, kills([("worker-1", 0.41)]), tmp_path)

    (loss,) = trial.events(COORDINATOR, "node_lost")
    assert any(begin_ms < loss["time_ms"] < end_ms for begin_ms, end_ms in periods_ms)
    assert trial.samples == trial.budget


@pytest.mark.parametrize("lost_workers", [["worker-1"], ["worker-1", "worker-3"]])
@pytest.mark.parametrize("policy", ["continue", "restore"])
def test_servers_wait_for_no_worker_that_was_lost_at_the_end(
    policy: str, lost_workers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the loss is noticed, the first worker has left: no membership epoch follows, in which servers go on.

    The last evaluation takes a second, and the workers are killed half-way.
    """
    measure_quality = ModelEvaluator.measure_quality

    async def measure_last_quality_slowly(evaluator: ModelEvaluator, params: Any, epoch: int, *counts: int) -> Any:
        if epoch == evaluator.plan.epochs:
            await evaluator.clock.sleep_until(evaluator.clock.now() + 1.0)
        return await measure_quality(evaluator, params, epoch, *counts)

    monkeypatch.setattr(ModelEvaluator, "measure_quality", measure_last_quality_slowly)
    recovery = {**RESTORE, "on_failure": policy, "restart_delay": "1s"}
    undisturbed = RecoveringTrial.run(SYNCHRONOUS["bsp"], recovery, [], tmp_path / "0")
    losses = kills([(worker, undisturbed.seconds - 0.5) for worker in lost_workers])

    trial = RecoveringTrial.run(SYNCHRONOUS["bsp"], recovery, losses, tmp_path / "1")

    assert trial.lost_nodes == lost_workers
    assert not trial.epochs
    assert trial.params_sha256 == undisturbed.params_sha256


@pytest.mark.parametrize("name", ["ring", "tree", "buckets", "bsp"])
def test_synchronous_training_continues_with_the_same_batches(name: str, tmp_path: Path) -> None:
    """A step means the same samples on any number of workers, so the final loss differs only by rounding."""
    undisturbed = RecoveringTrial.run(CONTINUE[name], {"on_failure": "continue"}, [], tmp_path / "0")
    disturbed = RecoveringTrial.run(
        CONTINUE[name], {"on_failure": "continue"}, kills(LOSSES["a worker"]), tmp_path / "1"
    )

    assert disturbed.epochs
    assert disturbed.final_loss == pytest.approx(undisturbed.final_loss, rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", REJOIN)
def test_a_restarted_worker_joins_again(name: str, loss: str, tmp_path: Path) -> None:
    """It gets the state of another worker, and computes its share of every later batch."""
    recovery = {"on_failure": "rejoin", "restart_delay": "200ms", "heartbeat_timeout": "100ms"}

    trial = RecoveringTrial.run(REJOIN[name], recovery, kills(LOSSES[loss]), tmp_path)

    assert trial.stop_reason == "budget used"
    assert trial.samples == trial.budget
    if trial.epochs and loss != "a worker at the end":
        assert len(trial.epochs[-1]["workers"]) == 4
    assert trial.has_equal_replicas_at_evaluations or name not in ("ring", "tree", "buckets", "bsp")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_restored_training_gives_the_bits_of_undisturbed_training(
    undisturbed_params_sha256: Callable[[str], str], name: str, loss: str, tmp_path: Path
) -> None:
    """A checkpoint has the whole state: parameters, optimiser, residuals, position in the data and random state."""
    disturbed = RecoveringTrial.run(SYNCHRONOUS[name], RESTORE, kills(LOSSES[loss]), tmp_path)

    assert disturbed.stop_reason == "budget used"
    assert disturbed.samples == disturbed.budget
    assert disturbed.params_sha256 == undisturbed_params_sha256(name)


@pytest.mark.parametrize("name", ["ring", "bsp", "error feedback"])
@pytest.mark.parametrize("kill_number", range(10))
def test_training_is_restored_after_a_kill_at_a_random_step(
    undisturbed_params_sha256: Callable[[str], str], name: str, kill_number: int, tmp_path: Path
) -> None:
    """Ten random steps and workers for each strategy; a step may be before the first checkpoint, or due for one."""
    random = Random(f"{name} {kill_number}")
    step, worker = random.randrange(1, 45), random.randrange(4)
    kill = {"kind": "kill", "of": [f"worker-{worker}"], "at": {"step": step}}

    disturbed = RecoveringTrial.run(SYNCHRONOUS[name], RESTORE, [kill], tmp_path)

    assert disturbed.lost_nodes or disturbed.epochs
    assert disturbed.params_sha256 == undisturbed_params_sha256(name)


def test_a_lost_server_is_restored_from_its_checkpoint(tmp_path: Path) -> None:
    recovery = {"on_failure": "restore", "restart_delay": "200ms", "checkpoint": {"steps": 6}}
    losses = kills([("server-1", 0.4)])

    undisturbed = RecoveringTrial.run(SYNCHRONOUS["bsp"], recovery, [], tmp_path / "0")
    disturbed = RecoveringTrial.run(SYNCHRONOUS["bsp"], recovery, losses, tmp_path / "1")

    assert disturbed.epochs
    assert disturbed.params_sha256 == undisturbed.params_sha256


def test_the_run_waits_for_a_server_that_was_restored(tmp_path: Path) -> None:
    """The server has joined again, so the run is not over when all others have left, and it ends once."""
    recovery = {**RESTORE, "heartbeat_timeout": "100ms", "restart_delay": "500ms"}

    trial = RecoveringTrial.run(SYNCHRONOUS["bsp"], recovery, kills([("server-1", 0.4)]), tmp_path)

    assert trial.lost_nodes == ["server-1"]
    assert len(trial.events(COORDINATOR, "run_stop")) == 1
    ends = [event["key"] for event in trial.all_events(COORDINATOR) if event["key"] in ("membership", "run_stop")]
    assert ends[-1] == "run_stop"


def test_a_node_that_is_lost_twice_joins_the_epoch_after_its_second_loss(tmp_path: Path) -> None:
    """While another node is still away, it must wait: the step of the epoch before may have no checkpoint any more."""
    recovery = {**RESTORE, "heartbeat_timeout": "100ms"}
    losses = kills([("worker-1", 0.4), ("worker-1", 1.5), ("worker-2", 1.56)])

    undisturbed = RecoveringTrial.run(SYNCHRONOUS["ring"], recovery, [], tmp_path / "0")
    disturbed = RecoveringTrial.run(SYNCHRONOUS["ring"], recovery, losses, tmp_path / "1")

    assert disturbed.lost_nodes == ["worker-1", "worker-1", "worker-2"]
    changes = [event for event in disturbed.all_events(COORDINATOR) if event["key"].startswith("membership")]
    kinds = [event["value"]["event"] if event["key"] == "membership" else event["key"] for event in changes]
    last_rejoins = [place for place, kind in enumerate(kinds) if kind == "joined again"][-2:]
    assert kinds.index("membership_epoch", kinds.index("membership_epoch") + 1) < min(last_rejoins)
    assert disturbed.params_sha256 == undisturbed.params_sha256


@pytest.mark.parametrize("name", ["ring", "bsp"])
def test_nodes_go_back_to_the_same_checkpoint_again(name: str, tmp_path: Path) -> None:
    """A checkpoint to which nodes have gone back stays complete, although it is due at their first step."""
    recovery = {**RESTORE, "heartbeat_timeout": "100ms"}
    losses = [
        {"kind": "kill", "of": [worker], "at": {"step": step}} for worker, step in (("worker-1", 15), ("worker-2", 16))
    ]

    undisturbed = RecoveringTrial.run(SYNCHRONOUS[name], recovery, [], tmp_path / "0")
    disturbed = RecoveringTrial.run(SYNCHRONOUS[name], recovery, losses, tmp_path / "1")

    recoveries = disturbed.events(COORDINATOR, "membership_recovery")
    assert [event["metadata"]["step"] for event in recoveries] == [12, 12]
    assert disturbed.params_sha256 == undisturbed.params_sha256


@pytest.mark.parametrize("step", [23, 24, 25])
@pytest.mark.parametrize("policy", ["continue", "rejoin"])
@pytest.mark.parametrize("name", ["ring", "bsp"])
def test_a_checkpoint_is_complete_after_nodes_have_gone_back_to_its_step(
    name: str, policy: str, step: int, tmp_path: Path
) -> None:
    """The trial of 45 steps has one checkpoint, at step 24; nodes continue from a state in memory."""
    recovery = {"on_failure": policy, "heartbeat_timeout": "100ms", "checkpoint": {"steps": 24}}
    loss = {"kind": "kill", "of": ["worker-1"], "at": {"step": step}}

    trial = RecoveringTrial.run(SYNCHRONOUS[name], recovery, [loss], tmp_path)

    assert trial.epochs
    [checkpoint] = CheckpointFolder(tmp_path).check_checkpoints()
    assert isinstance(checkpoint, CompleteCheckpoint)
    assert checkpoint.manifest.step == 24


def test_a_stopped_trial_continues_from_its_last_checkpoint(tmp_path: Path) -> None:
    """All nodes begin with the checkpoint, so that the trial has the bits of one that was never stopped."""
    recovery = {"checkpoint": {"steps": 6}}
    undisturbed = RecoveringTrial.run(SYNCHRONOUS["ring"], recovery, [], tmp_path / "0")

    continued = RecoveringTrial.run(SYNCHRONOUS["ring"], recovery, [], tmp_path / "0")

    assert continued.params_sha256 == undisturbed.params_sha256
    assert continued.first_logged_step == 42


@pytest.mark.parametrize("policy", ["continue", "rejoin"])
@pytest.mark.parametrize("name", ["ring", "bsp", "local_sgd"])
def test_a_worker_that_is_frozen_too_long_is_evicted(name: str, policy: str, tmp_path: Path) -> None:
    """It learns at its next heartbeat that training goes on without it, and joins again if the policy says so."""
    recovery = {"on_failure": policy, "heartbeat_timeout": "100ms", "restart_delay": "100ms"}
    freeze = {"kind": "stop", "of": ["worker-1"], "at": {"time": "200ms"}, "lasts": "400ms"}

    trial = RecoveringTrial.run(SYNCHRONOUS[name], recovery, [freeze], tmp_path)

    assert trial.samples == trial.budget
    assert trial.lost_nodes == ["worker-1"]
    assert len(trial.epochs[-1]["workers"]) == (3 if policy == "continue" else 4)


@pytest.mark.parametrize("name", ["ring", "bsp", "asp"])
def test_a_frozen_coordinator_considers_no_node_lost(name: str, tmp_path: Path) -> None:
    """While it is frozen, it reads no heartbeats. A worker that is lost afterwards is noticed as always."""
    recovery = {"on_failure": "continue", "heartbeat_timeout": "100ms"}
    freeze = {"kind": "stop", "of": ["coordinator"], "at": {"time": "300ms"}, "lasts": "400ms"}

    trial = RecoveringTrial.run(CONTINUE[name], recovery, [freeze, *kills([("worker-1", 0.9)])], tmp_path)

    assert trial.samples == trial.budget
    assert trial.lost_nodes == ["worker-1"]


@pytest.mark.parametrize("node", ["server-0", "worker-0"])
def test_an_asynchronous_node_that_cannot_follow_the_membership_ends_with_this_error(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a server would wait for a lost worker until a deadline, which would then be the reason."""
    await_change = MembershipFollower.await_change

    async def fail_on_node(follower: MembershipFollower) -> None:
        await await_change(follower)
        if follower.node_name == node:
            raise PeerUnreachable("call to coordinator failed")

    monkeypatch.setattr(MembershipFollower, "await_change", fail_on_node)

    with pytest.raises(DeclaredNodeLoss, match="PeerUnreachable: call to coordinator failed; worker-1 was killed"):
        RecoveringTrial.run(ASYNCHRONOUS["asp"], {"on_failure": "continue"}, kills([("worker-1", 0.4)]), tmp_path)


def test_the_loss_of_a_worker_ends_the_trial_without_a_policy(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as error:
        RecoveringTrial.run(SYNCHRONOUS["ring"], {}, kills(LOSSES["a worker"]), tmp_path)

    assert "worker-1 was killed" in repr(error.value)


def compute_times_s(trial: RecoveringTrial, worker_name: str) -> list[float]:
    """Return the compute time of each step in the log of a worker."""
    column = STEP_COLUMNS.index("compute_s")
    return [row[column] for event in trial.events(worker_name, "node_steps") for row in event["value"]["rows"]]


@pytest.mark.parametrize("recovery", [{"on_failure": "rejoin", "restart_delay": "200ms"}, RESTORE])
def test_a_worker_that_joins_again_applies_no_past_event_again(recovery: dict[str, Any], tmp_path: Path) -> None:
    """Another corrupted message or pause is not declared, and a second record of an event would be seconds late."""
    one = {"of": ["worker-1"]}
    events: list[dict[str, Any]] = [
        {"kind": "corrupt", **one, "at": {"time": "50ms"}},
        {"kind": "corrupt", **one, "at": {"step": 2}},
        {"kind": "drop_connection", "of": ["worker-0", "worker-1"], "at": {"time": "60ms"}},
        {"kind": "pause", **one, "at": {"time": "70ms"}, "lasts": "10ms"},
        {"kind": "pause", **one, "at": {"step": 3}, "lasts": "10ms"},
        {"kind": "link", **one, "at": {"time": "80ms"}, "uplink": "5mbit", "lasts": "10ms"},
        {"kind": "slowdown", **one, "at": {"time": "100ms"}, "factor": 1.5, "lasts": "60s"},
        *kills([("worker-1", 0.9)]),
    ]

    trial = RecoveringTrial.run(SYNCHRONOUS["ring"], recovery, events, tmp_path, transport="tcp")

    assert trial.stop_reason == "budget used"
    assert trial.epochs[-1]["joined"] == ["worker-1"]
    assert len(trial.events("worker-1", "message_corrupted")) == 2
    applied = [event["value"] for event in trial.events("worker-1", "event_applied")]
    phases = [(value["number"], value["phase"]) for value in applied]
    assert len(phases) == len(set(phases))
    declared = {event.number for event in trial.plan.events if not event.is_node_fault}
    assert {number for number, phase in phases if phase == "begin"} == declared
    assert max(value["lateness_s"] for value in applied) < 0.01
    last_compute_s = {node: compute_times_s(trial, node)[-1] for node in ("worker-1", "worker-2")}
    assert last_compute_s["worker-1"] > 1.4 * last_compute_s["worker-2"]  # the slowdown goes on


def test_few_steps_are_lost_with_the_log_of_a_worker(tmp_path: Path) -> None:
    """Steps that a worker has not logged when it is killed count as lost time in the goodput."""
    trial = RecoveringTrial.run(SYNCHRONOUS["ring"], {"on_failure": "continue"}, [], tmp_path)

    start = list(STEP_COLUMNS).index("start_s")
    logged = [event["value"]["rows"] for event in trial.events("worker-1", "node_steps")]
    assert max(rows[-1][start] - rows[0][start] for rows in logged) < 0.15


@pytest.mark.parametrize("name", ["ring", "bsp"])
def test_a_training_ends_although_the_last_worker_is_killed_while_the_coordinator_finishes_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The coordinator evaluates the final model in the call by which the last node leaves."""

    async def take_a_second(self: ModelEvaluator, _parameters: object) -> None:
        await self.clock.sleep_until(self.clock.now() + 1.0)

    monkeypatch.setattr(ModelEvaluator, "log_sample_pictures", take_a_second)
    recovery = {"on_failure": "continue"}
    undisturbed = RecoveringTrial.run(SYNCHRONOUS[name], recovery, [], tmp_path / "undisturbed")
    (start,), (stop,) = (undisturbed.events(COORDINATOR, key) for key in ("run_start", "run_stop"))
    end_s = (stop["time_ms"] - start["time_ms"]) / 1e3
    workers = [f"worker-{rank}" for rank in range(4)]
    kill = {"kind": "kill", "of": workers, "at": {"time": f"{end_s + 0.5:.3f}s"}}

    trial = RecoveringTrial.run(SYNCHRONOUS[name], recovery, [kill], tmp_path / "killed")

    assert trial.samples == trial.budget
    assert trial.events(COORDINATOR, "run_stop")


@pytest.mark.parametrize("policy", ["rejoin", "restore"])
def test_a_worker_that_is_started_again_before_its_silence_is_noticed_was_lost_once(
    policy: str, tmp_path: Path
) -> None:
    """Otherwise reports would count no failure, and measure no time of detection."""
    recovery = {"on_failure": policy, "restart_delay": "50ms", "heartbeat_timeout": "2s", "checkpoint": {"steps": 6}}
    trial = RecoveringTrial.run({"kind": "all_reduce"}, recovery, kills([("worker-1", 0.43)]), tmp_path)

    (loss,) = trial.events(COORDINATOR, "node_lost")
    assert loss["value"]["node"] == "worker-1"
    assert 0.05 <= loss["value"]["silent_s"] < 0.5
    assert loss["value"]["reason"] == f"started again after {loss['value']['silent_s']:.3g} s without a heartbeat"
    assert trial.samples == trial.budget


@pytest.mark.parametrize("policy", ["rejoin", "restore"])
@pytest.mark.parametrize("second_s", [0.43, 0.47])
def test_a_node_that_two_faults_end_is_started_again_once(policy: str, second_s: float, tmp_path: Path) -> None:
    """The second fault finds the node away. Two starts would run the node twice."""
    recovery = {"on_failure": policy, "restart_delay": "100ms", "checkpoint": {"steps": 6}}
    losses = kills([("worker-1", 0.43), ("worker-1", second_s)])
    trial = RecoveringTrial.run({"kind": "all_reduce"}, recovery, losses, tmp_path)

    assert len(trial.events("worker-1", "node_start")) == 2
    assert trial.samples == trial.budget


def test_workers_that_are_lost_again_before_all_are_back_have_a_loss_each(tmp_path: Path) -> None:
    """Under `restore`, worker-1 waits for worker-2 when it is killed again."""
    recovery = {
        "on_failure": "restore",
        "restart_delay": "50ms",
        "heartbeat_timeout": "100ms",
        "checkpoint": {"steps": 6},
    }
    restart = {"kind": "restart", "of": ["worker-2"], "at": {"time": "0.43s"}, "after": "600ms"}
    losses = kills([("worker-1", 0.43), ("worker-1", 0.7)])
    trial = RecoveringTrial.run({"kind": "all_reduce"}, recovery, [restart, *losses], tmp_path)

    lost = [event["value"]["node"] for event in trial.events(COORDINATOR, "node_lost")]
    assert sorted(lost) == ["worker-1", "worker-1", "worker-2"]
    assert trial.samples == trial.budget
