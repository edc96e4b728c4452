"""Partitions of the data network between real processes and containers."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_runs import run_faults

from compose.runs.run import FinishedRun
from services.runtime.run_log import LOG_LINE_PREFIX

Document = dict[str, Any]

STRATEGIES: dict[str, Document] = {
    "bsp": {"kind": "parameter_server"},
    "ring": {"kind": "all_reduce"},
    "ssp": {"kind": "parameter_server", "synchrony": {"kind": "ssp", "staleness": 3}},
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
    "dpsgd": {"kind": "d_psgd"},
    "adpsgd": {"kind": "ad_psgd"},
    "local": {"kind": "local_sgd", "period": 4},
}
SYNCHRONOUS = ("bsp", "ring", "dpsgd", "local")
SAMPLES, BATCH = 320, 8  # of the budget, and of a step
PARTITION = {"kind": "partition", "apart": ["worker-1"], "at": {"step": 12}, "lasts": "5s"}
START = {"start": "5min"}  # of containers on a busy host
SEPARATION = "a partition separated worker-1 from "


def log_events(run: FinishedRun, node: str, key: str) -> list[Document]:
    """Return the events with a key in a node's log of the run's only trial."""
    (log,) = run.folder.glob(f"trials/*/logs/{node}.log")
    lines = (line for line in log.read_text().splitlines() if line.startswith(LOG_LINE_PREFIX))
    events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
    return [event for event in events if event["key"] == key]


def longest_blocked_s(run: FinishedRun, node: str) -> float:
    """Return the longest time for which a worker was blocked on the network in a step, in virtual seconds."""
    batches = [event["value"] for event in log_events(run, node, "node_steps")]
    rows = [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]
    return max(float(row["exchange_s"] + row["wait_s"]) for row in rows)


def in_container(*values: str) -> Any:
    """Return a case that runs its nodes in containers."""
    return pytest.param("docker", *values, marks=pytest.mark.docker)


@pytest.mark.parametrize(
    ("engine", "strategy"),
    [("local", "ring"), ("local", "adpsgd"), *map(in_container, ("bsp", "ssp", "asp", "dpsgd", "local"))],
    indirect=["engine"],
)
def test_a_partition_of_five_seconds_is_survived(tmp_path: Path, engine: str, strategy: str) -> None:
    """Messages arrive after the partition; TCP sends them again in containers. No sample is lost or used twice."""
    run = run_faults(tmp_path, engine, [PARTITION], {strategy: STRATEGIES[strategy]}, attempts=1, timeouts=START)

    (outcome,) = run.statuses
    assert (outcome.status, outcome.reason) == ("success", "")
    (stop,) = log_events(run, "coordinator", "run_stop")
    excess = stop["metadata"]["samples_count"] - SAMPLES
    assert excess == 0 if strategy in SYNCHRONOUS else 0 <= excess < BATCH
    losses = [event["value"]["loss"] for event in log_events(run, "coordinator", "eval_metrics")]
    assert np.isfinite(losses).all()
    assert 4.5 < longest_blocked_s(run, "worker-1") < 12  # TCP may wait as long again


@pytest.mark.parametrize(
    ("engine", "strategy", "policy"),
    [("local", "ring", "abort"), in_container("bsp", "abort"), in_container("asp", "continue")],
    indirect=["engine"],
)
def test_a_partition_longer_than_the_step_timeout_ends_the_trial_and_is_named(
    tmp_path: Path, engine: str, strategy: str, policy: str
) -> None:
    """Heartbeats use the control network, so no policy takes the nodes of one side for lost."""
    event = PARTITION | {"lasts": "60s"}
    keys = {"timeouts": START | {"step": "2s"}, "recovery": {"on_failure": policy, "heartbeat_timeout": "3s"}}

    run = run_faults(tmp_path, engine, [event], {strategy: STRATEGIES[strategy]}, attempts=1, **keys)

    (outcome,) = run.statuses
    assert outcome.status == "failed"
    # The message is late at one node; its peers may end first, because that node has ended its streams.
    assert re.search("ended with exit code 4: (DeadlineExceeded|PeerUnreachable): ", outcome.reason)
    others = "worker-0" if strategy == "ring" else "server-0 and worker-0"
    assert outcome.reason.endswith(f"; {SEPARATION}{others} at step 12 for 60s, as declared in events[0]")
