"""Scenarios of the benchmark of recovery, and its limits."""

from collections.abc import Sequence
from typing import Any

from benchmarks.recovery.kill_schedule import ScheduledKill, kill_events

SMALL_CLUSTER, LARGE_CLUSTER = 4, 8  # workers
TRIALS_PER_POLICY = 5
SEEDS = 8  # of the undisturbed trials
KILLS, COST_KILLS = 100, 8  # of the long trial, and of the trial that measures what a kill costs
SCHEDULE_SEED = 20261127
MEAN_GAP_S, ABSENCE_S = 32.0, 10.0  # of one worker, virtual seconds
COST_KILL_GAP_S, FIRST_COST_KILL_S = 9.1, 6.0  # virtual seconds; no multiple of the time between two heartbeats
HEARTBEAT_TIMEOUT, RESTART_DELAY = "1500ms", "2s"  # of the trials with many kills
SECONDS_AFTER_LAST_KILL = 15.0  # of the long trial, virtual

MAX_RECOVERY_S, MAX_RETURN_S = 3.0, 5.0  # virtual seconds from a kill
MAX_GOODPUT_ERROR = 0.05  # relative, of the closed form
MAX_LOSS_DEVIATIONS = 2.0  # standard deviations of the undisturbed trials' final losses, around their mean

SAMPLES_PER_STEP = {SMALL_CLUSTER: 160, LARGE_CLUSTER: 320}
WORKER_SPEED = {SMALL_CLUSTER: "200/s", LARGE_CLUSTER: "80/s"}  # steps of 200 ms and of 500 ms
LARGE_CLUSTER_STEP_S = 0.5  # of compute
TARGET_ACCURACY = 0.9
SMALL_CLUSTER_EPOCHS = 7
KILL_STEP = 15
TRAINING_SAMPLES = 1438  # of digits, without the samples that are held out


def policy_scenario(policy: str) -> dict[str, Any]:
    """Return the scenario in which one of four workers is killed, with the default timeouts of `recovery`."""
    kill = {"kind": "kill", "of": ["worker-2"], "at": {"step": KILL_STEP}}
    keys = {"recovery": {"on_failure": policy}, "events": [kill], "repeats": TRIALS_PER_POLICY}
    return _training(f"recovery-{policy}", SMALL_CLUSTER, SMALL_CLUSTER_EPOCHS) | keys


def cost_scenario(epochs: int) -> dict[str, Any]:
    """Return the scenario that measures what a kill costs a training of eight workers."""
    workers = worker_names(LARGE_CLUSTER)
    kills = [
        ScheduledKill(FIRST_COST_KILL_S + number * COST_KILL_GAP_S, workers[number % LARGE_CLUSTER])
        for number in range(COST_KILLS)
    ]
    return many_kills_scenario(kills, epochs) | {"name": "recovery-costs"}


def many_kills_scenario(kills: Sequence[ScheduledKill], epochs: int) -> dict[str, Any]:
    """Return the scenario of eight workers that are killed again and again, and join again.

    A killed worker is started again when its loss is known: after `RESTART_DELAY`, which is longer than the detection.
    """
    recovery = {"on_failure": "rejoin", "heartbeat_timeout": HEARTBEAT_TIMEOUT, "restart_delay": RESTART_DELAY}
    keys = {"recovery": recovery, "events": kill_events(kills)}
    return _training("recovery-many-kills", LARGE_CLUSTER, epochs) | keys


def undisturbed_scenario(epochs: int) -> dict[str, Any]:
    """Return the scenario of eight workers without kills, with several seeds."""
    return _training("recovery-undisturbed", LARGE_CLUSTER, epochs) | {"repeats": SEEDS}


def worker_names(workers: int) -> tuple[str, ...]:
    """Return the names of the first workers of a cluster."""
    return tuple(f"worker-{rank}" for rank in range(workers))


def _training(name: str, workers: int, epochs: int) -> dict[str, Any]:
    return {
        "name": name,
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [64]},
            "optimiser": {"kind": "momentum", "rate": 0.05},
            "batch": SAMPLES_PER_STEP[workers],
            "epochs": epochs,
            "target": {"metric": "accuracy", "at_least": TARGET_ACCURACY},
            "stop": "budget",
        },
        "cluster": {
            "workers": workers,
            "worker": {"throughput": WORKER_SPEED[workers], "uplink": "100mbit", "downlink": "100mbit"},
        },
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
        "attempts": 1,
    }
