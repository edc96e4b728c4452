"""Checkpoints after an interval of virtual time: all nodes write them before the same step."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recovering_trial import RecoveringTrial

from services.coordinator.checkpoint_announcements import CheckpointAnnouncements
from services.coordinator.membership_machine import MembershipStateMachine
from services.node.simulate import InProcessCoordinatorClient
from services.plan import COORDINATOR
from services.runtime.clock import VirtualClock
from services.runtime.membership import CheckpointProposal
from services.runtime.run_log import RunLog
from services.scenario.recovery import RecoverySettings

INTERVAL_S = 0.15  # steps of paced workers take 20 ms and more
CHECKPOINT = {"interval": "150ms"}
RESTORE = {"on_failure": "restore", "heartbeat_timeout": "100ms", "restart_delay": "50ms", "checkpoint": CHECKPOINT}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ring": {"kind": "all_reduce"},
    "tree": {"kind": "all_reduce", "collective": {"kind": "tree"}},
    "buckets": {"kind": "all_reduce", "overlap": {"kind": "buckets"}},
    "bsp": {"kind": "parameter_server", "servers": 2},
    "local_sgd": {"kind": "local_sgd", "period": 3},
    "diloco": {"kind": "diloco", "period": 3},
}
# Ranks 2 and 3 are slow in different ways; rank 0, which measures the time, is neither the fastest nor the slowest.
UNEVEN = [
    {"name": "fast", "ranks": [1], "throughput": "2000/s"},
    {"name": "slow", "ranks": [2], "throughput": "120/s"},
    {"name": "far", "ranks": [3], "delay": "30ms", "uplink": "1mbit"},
]


def announcements(trial: RecoveringTrial) -> dict[int, float]:
    """Return the virtual time of the last announcement of each step, in seconds."""
    events = trial.events(COORDINATOR, "checkpoint_announced")
    return {event["metadata"]["step"]: event["time_ms"] / 1e3 for event in events}


def complete_steps(trial: RecoveringTrial) -> list[int]:
    return [event["metadata"]["step"] for event in trial.events(COORDINATOR, "checkpoint_complete")]


def written_steps(trial: RecoveringTrial) -> dict[str, list[int]]:
    """Return the steps of the checkpoints that each node has written."""
    nodes = [node for node in trial.lines if node != COORDINATOR]
    return {node: [event["metadata"]["step"] for event in trial.events(node, "checkpoint")] for node in nodes}


def steps_since_last_epoch(trial: RecoveringTrial, key: str) -> list[int]:
    """Return the steps that the coordinator has logged with a key since the last change of the membership."""
    epoch_ms = trial.events(COORDINATOR, "membership_epoch")[-1]["time_ms"]
    events = [event for event in trial.events(COORDINATOR, key) if event["time_ms"] >= epoch_ms]
    return [event["metadata"]["step"] for event in events]


def delay_control_calls(monkeypatch: pytest.MonkeyPatch, seed: str, longest_s: float) -> None:
    """Delay the calls about announced checkpoints, before and after the coordinator handles them, by random times."""
    random = Random(seed)
    propose, await_step = (
        InProcessCoordinatorClient.propose_checkpoint,
        InProcessCoordinatorClient.await_checkpoint_step,
    )

    async def propose_late(client: InProcessCoordinatorClient, proposal: CheckpointProposal) -> None:
        await asyncio.sleep(random.uniform(0, longest_s))
        await propose(client, proposal)
        await asyncio.sleep(random.uniform(0, longest_s))

    async def await_late(client: InProcessCoordinatorClient, epoch: int, known_step: int) -> int:
        await asyncio.sleep(random.uniform(0, longest_s))
        step = await await_step(client, epoch, known_step)
        await asyncio.sleep(random.uniform(0, longest_s))
        return step

    monkeypatch.setattr(InProcessCoordinatorClient, "propose_checkpoint", propose_late)
    monkeypatch.setattr(InProcessCoordinatorClient, "await_checkpoint_step", await_late)


@pytest.mark.parametrize("groups", [[], UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_all_nodes_write_before_the_same_steps(name: str, groups: list[dict[str, Any]], tmp_path: Path) -> None:
    """The interval is that of the scenario, plus the time to the end of the exchange after the next one."""
    trial = RecoveringTrial.run(STRATEGIES[name], {"checkpoint": CHECKPOINT}, [], tmp_path / "0", groups=groups)
    without = RecoveringTrial.run(STRATEGIES[name], {}, [], tmp_path / "1", groups=groups)

    announced = announcements(trial)
    assert len(complete_steps(trial)) >= 3
    assert complete_steps(trial) == list(announced)
    assert {tuple(steps) for steps in written_steps(trial).values()} == {tuple(complete_steps(trial))}
    period = STRATEGIES[name].get("period", 1)
    assert all(step % period == 0 for step in announced)
    writes_s = [event["time_ms"] / 1e3 for event in trial.events("worker-0", "checkpoint")]
    intervals_s = [later - earlier for earlier, later in zip(writes_s, list(announced.values())[1:], strict=False)]
    exchange_s = period * max(
        row[3] for event in trial.events("worker-0", "node_steps") for row in event["value"]["rows"]
    )
    assert all(INTERVAL_S - 1e-6 <= interval_s <= INTERVAL_S + exchange_s for interval_s in intervals_s)
    assert trial.params_sha256 == without.params_sha256


def test_a_single_worker_writes_checkpoints_after_an_interval(tmp_path: Path) -> None:
    trial = RecoveringTrial.run({"kind": "none"}, {"checkpoint": CHECKPOINT}, [], tmp_path, workers=1)

    assert len(complete_steps(trial)) > 10
    assert complete_steps(trial) == list(announcements(trial))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STRATEGIES)
def test_no_node_passes_the_step_before_it_knows_of_it(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls take up to four steps, and the other workers go on until they need the worker that measures the time.

    If this worker did not wait, nodes would pass the step before they know of it, and checkpoints would be incomplete.
    """
    delay_control_calls(monkeypatch, f"{name} {seed}", 0.1)

    trial = RecoveringTrial.run(STRATEGIES[name], {"checkpoint": CHECKPOINT}, [], tmp_path, groups=UNEVEN)

    assert len(complete_steps(trial)) >= 2
    assert complete_steps(trial) == list(announcements(trial))
    assert trial.samples == trial.budget


@pytest.mark.parametrize("kill_number", range(5))
@pytest.mark.parametrize("name", ["ring", "bsp", "local_sgd"])
def test_training_is_restored_after_a_kill_between_proposal_and_write(
    name: str, kill_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new epoch cancels the proposal, and every bit is that of a training without losses."""
    undisturbed = RecoveringTrial.run(STRATEGIES[name], RESTORE, [], tmp_path / "0", groups=UNEVEN)
    delay_control_calls(monkeypatch, f"{name} {kill_number}", 0.05)
    random = Random(f"kill {name} {kill_number}")
    calm = RecoveringTrial.run(STRATEGIES[name], RESTORE, [], tmp_path / "1", groups=UNEVEN)
    complete = calm.events(COORDINATOR, "checkpoint_complete")
    write_s = random.choice(complete)["time_ms"] / 1e3 - calm.events(COORDINATOR, "run_start")[0]["time_ms"] / 1e3
    nodes = [node for node in calm.lines if node != COORDINATOR]
    time_s = round(write_s - random.uniform(0, 0.15), 4)
    kill = {"kind": "kill", "of": [random.choice(nodes)], "at": {"time": f"{time_s}s"}}

    delay_control_calls(monkeypatch, f"{name} {kill_number}", 0.05)
    disturbed = RecoveringTrial.run(STRATEGIES[name], RESTORE, [kill], tmp_path / "2", groups=UNEVEN)

    assert disturbed.epochs
    assert disturbed.samples == disturbed.budget
    assert disturbed.params_sha256 == calm.params_sha256 == undisturbed.params_sha256
    announced = steps_since_last_epoch(disturbed, "checkpoint_announced")
    assert steps_since_last_epoch(disturbed, "checkpoint_complete") == announced


@pytest.mark.parametrize("kill_number", range(5))
@pytest.mark.parametrize("policy", ["continue", "rejoin"])
@pytest.mark.parametrize("name", ["ring", "bsp", "local_sgd"])
def test_other_workers_go_on_writing_checkpoints_without_a_lost_one(
    name: str, policy: str, kill_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker measures the time if the first one is lost."""
    random = Random(f"{name} {policy} {kill_number}")
    delay_control_calls(monkeypatch, f"{name} {policy} {kill_number}", 0.05)
    time_s, worker = round(random.uniform(0.05, 0.8), 4), random.choice(["worker-0", "worker-0", "worker-2"])
    kill = {"kind": "kill", "of": [worker], "at": {"time": f"{time_s}s"}}
    recovery = RESTORE | {"on_failure": policy}

    trial = RecoveringTrial.run(STRATEGIES[name], recovery, [kill], tmp_path, groups=UNEVEN)

    (first_epoch, *_) = trial.epochs
    assert worker not in first_epoch["workers"] or policy == "rejoin"
    assert trial.samples == trial.budget
    assert steps_since_last_epoch(trial, "checkpoint_complete")
    announced = steps_since_last_epoch(trial, "checkpoint_announced")
    assert steps_since_last_epoch(trial, "checkpoint_complete") == announced


def test_time_before_a_loss_counts_when_no_step_is_repeated_from_a_checkpoint(tmp_path: Path) -> None:
    """Otherwise a training whose workers are lost more often than the interval would have no checkpoint."""
    kills = [{"kind": "kill", "of": [f"worker-{rank}"], "at": {"step": 6 * rank}} for rank in (1, 2, 3)]
    recovery = {"on_failure": "continue", "heartbeat_timeout": "40ms", "checkpoint": {"interval": "400ms"}}

    trial = RecoveringTrial.run(STRATEGIES["ring"], recovery, kills, tmp_path)

    last_loss_ms = trial.events(COORDINATOR, "node_lost")[-1]["time_ms"]
    (first, *_) = trial.events(COORDINATOR, "checkpoint_announced")
    assert first["time_ms"] < last_loss_ms + 400


def test_a_frozen_node_delays_the_checkpoint_and_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker that measures the time waits for the confirmation, not only for a message of the frozen node."""
    delay_control_calls(monkeypatch, "frozen", 0.001)
    freeze = {"kind": "stop", "of": ["worker-2"], "at": {"step": 9}, "lasts": "80ms"}  # the first exchange is over
    recovery = {"heartbeat_timeout": "1s", "checkpoint": CHECKPOINT}

    trial = RecoveringTrial.run({"kind": "local_sgd", "period": 9}, recovery, [freeze], tmp_path)

    first, *others = trial.events(COORDINATOR, "checkpoint_announced")
    assert first["value"]["seconds"] > 0.07
    assert all(event["value"]["seconds"] < 0.01 for event in others)
    assert complete_steps(trial) == list(announcements(trial))


def test_the_interval_begins_anew_after_a_full_disk(tmp_path: Path) -> None:
    """An attempt that failed counts as a checkpoint: otherwise nodes would try again before every step."""
    full = {"kind": "disk_full", "of": ["worker-1"], "at": {"step": 2}, "lasts": "400ms"}

    trial = RecoveringTrial.run(STRATEGIES["ring"], RESTORE, [full], tmp_path / "full")
    undisturbed = RecoveringTrial.run(STRATEGIES["ring"], RESTORE, [], tmp_path / "undisturbed")

    failed = [event["metadata"]["step"] for event in trial.events("worker-1", "checkpoint_failed")]
    assert failed
    assert sorted([*failed, *complete_steps(trial)]) == complete_steps(undisturbed)
    assert trial.params_sha256 == undisturbed.params_sha256


@pytest.mark.parametrize("name", ["ring", "bsp", "local_sgd"])
def test_a_trial_continues_from_a_checkpoint_after_an_interval(name: str, tmp_path: Path) -> None:
    """The folder has the checkpoints of the earlier attempt; the trial begins with the last one."""
    earlier = RecoveringTrial.run(STRATEGIES[name], {"checkpoint": CHECKPOINT}, [], tmp_path)

    continued = RecoveringTrial.run(STRATEGIES[name], {"checkpoint": CHECKPOINT}, [], tmp_path)

    assert continued.first_logged_step == complete_steps(earlier)[-1]
    assert continued.params_sha256 == earlier.params_sha256


def test_a_proposal_needs_no_confirmation_of_nodes_that_have_left_or_are_lost() -> None:
    """When the run stops at its target, others may leave before the first worker proposes a step."""
    machine = MembershipStateMachine(RecoverySettings(on_failure="restore"), ("worker-0", "worker-1"), ("server-0",))
    machine.start_watching(0.0)
    announced = CheckpointAnnouncements(machine, VirtualClock(), RunLog("", VirtualClock(), lambda _: None))

    async def propose() -> list[bool]:
        calls = [asyncio.create_task(announced.await_step("worker-0", 0, 0))]
        proposal = asyncio.create_task(announced.propose(CheckpointProposal("worker-0", 0, 8)))
        calls.append(asyncio.create_task(announced.await_step("worker-0", 0, await calls[0])))
        done = []
        for change in (lambda: machine.handle_leave("worker-1"), lambda: machine.find_lost_nodes(9.0)):
            change()
            await announced.handle_departure()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            done.append(proposal.done())
        calls[1].cancel()
        return done

    assert asyncio.run(propose()) == [False, True]
