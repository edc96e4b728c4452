"""Declared drops of connections between processes and between containers."""

from pathlib import Path
from typing import Any

from fault_runs import logged_events, run_faults

from compose.runs.run import FinishedRun

STRATEGIES = {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}}
DROPS = [
    {"kind": "drop_connection", "of": ["worker-0", "worker-1"], "at": {"step": 12}},
    {"kind": "drop_connection", "of": ["worker-0", "worker-1", "server-0"], "at": {"time": "1s"}},
]


def logged_values(run: FinishedRun, strategy: str, key: str) -> list[tuple[str, Any]]:
    """Return node and value of the events with a key in all logs of a strategy's trial."""
    return [(node, event["value"]) for node, event in logged_events(run, strategy, key)]


def test_training_goes_on_over_new_connections(tmp_path: Path, engine: str) -> None:
    """Sockets are really shut down; the parameters have the bits of a training without drops."""
    run = run_faults(tmp_path, engine, DROPS, STRATEGIES, transport="tcp", attempts=1)
    undisturbed = run_faults(tmp_path, "simulated", [], STRATEGIES, transport="tcp")

    assert {(outcome.status, outcome.reason) for outcome in run.statuses} == {("success", "")}
    for strategy, pairs in (("ring", 2), ("ps", 4)):
        drops = logged_values(run, strategy, "connection_dropped")
        reopenings = logged_values(run, strategy, "connection_reopened")
        assert len(drops) == len(reopenings) >= pairs
        assert sorted(node for node, _ in drops) == sorted(node for node, _ in reopenings)
        assert all(value["seconds"] < 2 and value["resent_messages"] >= 0 for _, value in reopenings)
        digests = [logged_values(each, strategy, "params_sha256") for each in (run, undisturbed)]
        assert digests[0] == digests[1]
