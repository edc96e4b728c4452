"""Checkpoints after an interval of virtual time, in processes and in containers."""

from pathlib import Path
from typing import Any

from fault_runs import logged_events, run_faults

from services.plan import COORDINATOR

STRATEGIES: dict[str, dict[str, Any]] = {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}}
INTERVAL_S = 0.5
RESTORE = {
    "on_failure": "restore",
    "heartbeat_timeout": "5s",  # on a busy host, nodes may be silent for seconds
    "checkpoint": {"interval": f"{INTERVAL_S}s"},
}
KILL = {"kind": "kill", "of": ["worker-1"], "at": {"step": 25}}


def test_all_nodes_write_a_checkpoint_after_an_interval(tmp_path: Path, engine: str) -> None:
    """Steps take 50 ms. A worker is killed, and the bits are those of a training without losses."""
    strategies = STRATEGIES if engine == "local" else {"ps": STRATEGIES["ps"]}
    run = run_faults(tmp_path, engine, [KILL], strategies, recovery=RESTORE, attempts=1, timeouts={"start": "180s"})
    undisturbed = run_faults(tmp_path, "simulated", [], strategies)

    assert {(outcome.status, outcome.reason) for outcome in run.statuses} == {("success", "")}
    for strategy in strategies:
        [(_, epoch)] = logged_events(run, strategy, "membership_epoch")
        announced = [event for _, event in logged_events(run, strategy, "checkpoint_announced")]
        complete = [event["metadata"]["step"] for _, event in logged_events(run, strategy, "checkpoint_complete")]
        before = [event["metadata"]["step"] for event in announced if event["time_ms"] < epoch["time_ms"]]
        after = [event["metadata"]["step"] for event in announced if event["time_ms"] >= epoch["time_ms"]]
        assert before
        assert after
        # The loss may cancel the last announcement before it; the last step of the training may come before the other.
        assert complete in (before + after, before[:-1] + after, before + after[:-1], before[:-1] + after[:-1])
        assert {event["value"]["by"] for event in announced} == {"worker-0"}
        writes_ms = [
            event["time_ms"] for node, event in logged_events(run, strategy, "checkpoint") if node == "worker-0"
        ]
        gaps_s = [
            (announcement["time_ms"] - max(write_ms for write_ms in writes_ms if write_ms < announcement["time_ms"]))
            / 1e3
            for announcement in announced[1:]
        ]
        assert all(gap_s >= INTERVAL_S - 0.05 for gap_s in gaps_s)
        digests = [logged_events(each, strategy, "params_sha256") for each in (run, undisturbed)]
        assert [event["value"] for node, event in digests[0] if node == COORDINATOR] == [
            event["value"] for node, event in digests[1] if node == COORDINATOR
        ]
