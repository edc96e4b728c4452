"""Messages whose bits flip on their way, between real processes and containers, on both data planes."""

import json
from pathlib import Path
from typing import Any

import pytest
from fault_runs import run_faults
from refused_connection_events import refused_connections

from compose.runs.run import FinishedRun
from services.runtime.run_log import LOG_LINE_PREFIX
from services.transport.data_planes import DATA_PLANES

RING = {"kind": "all_reduce"}
CORRUPT = {"kind": "corrupt", "of": ["worker-1"], "at": {"step": 10}, "bits": 3}
WRONG_TAG = "a message has a wrong authentication tag: it was altered, repeated, left out or reordered"


def read_log(run: FinishedRun, node: str) -> list[str]:
    """Return the lines of a node's log in the only trial of a run."""
    (log,) = run.folder.glob(f"trials/*/logs/{node}.log")
    return log.read_text().splitlines()


def read_values(run: FinishedRun, node: str, key: str) -> list[Any]:
    """Return the values of the events with this key in the log of a node."""
    events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in read_log(run, node))
    return [event["value"] for event in events if event["key"] == key]


@pytest.mark.slow_where(transport=["grpc"])
@pytest.mark.parametrize("transport", DATA_PLANES)
def test_a_corrupted_message_with_a_tag_is_refused_and_recorded_once(
    tmp_path: Path, engine: str, transport: str
) -> None:
    """The tag is that of the message before its bits flip, as on a network.

    A TCP stream is opened again, and the training goes on. A gRPC stream ends, and the trial with it: the reason is
    that of the node that ends first, the sender or the receiver.
    """
    security = {"data": "authenticated"}
    run = run_faults(tmp_path, engine, [CORRUPT], {"ring": RING}, transport=transport, security=security)

    (outcome,) = run.statuses
    (corrupted,) = read_values(run, "worker-1", "message_corrupted")
    assert (corrupted["receiver"], corrupted["is_detectable"], corrupted["number"]) == ("worker-0", True, 0)
    assert refused_connections(read_log(run, "worker-0")) == [
        {"reason": WRONG_TAG, "claimed_sender": "worker-1", "is_last": False}
    ]
    assert refused_connections(read_log(run, "worker-1")) == []
    if transport == "tcp":
        undisturbed = run_faults(tmp_path, "simulated", [], {"ring": RING}, transport=transport, security=security)
        digests = [read_values(each, "coordinator", "params_sha256") for each in (run, undisturbed)]
        assert outcome.status == "success"
        assert digests[0] == digests[1]
    else:
        assert outcome.status == "failed"
        assert "broke off" in outcome.reason


@pytest.mark.slow_where(transport=["grpc"])
@pytest.mark.parametrize("transport", DATA_PLANES)
def test_tags_change_no_result_and_a_corruption_without_them_is_not_detected(tmp_path: Path, transport: str) -> None:
    """The training uses what has arrived: only the sender's log knows of the corruption."""
    runs = {}
    for name, data, events in (
        ("plain", "signed", []),
        ("tags", "authenticated", []),
        ("corrupted", "signed", [CORRUPT]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        strategies = {"ring": RING}
        runs[name] = run_faults(folder, "local", events, strategies, transport=transport, security={"data": data})
        (outcome,) = runs[name].statuses
        assert (outcome.status, outcome.reason) == ("success", "")
    digests = {name: read_values(run, "coordinator", "params_sha256") for name, run in runs.items()}

    assert len(digests["plain"]) == 1
    assert digests["tags"] == digests["plain"]
    assert digests["corrupted"] != digests["plain"]
    (corrupted,) = read_values(runs["corrupted"], "worker-1", "message_corrupted")
    assert (corrupted["is_detectable"], len(corrupted["flipped_bits"])) == (False, 3)
    assert [refused_connections(read_log(runs["corrupted"], f"worker-{rank}")) for rank in (0, 1)] == [[], []]
