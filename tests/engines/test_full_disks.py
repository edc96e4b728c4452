"""Declared full disks of nodes in processes and in containers."""

from pathlib import Path

from fault_runs import logged_events, run_faults

from services.plan import COORDINATOR

STRATEGIES = {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}}
RECOVERY = {"checkpoint": {"steps": 10}}
FULL_DISKS = [
    {"kind": "disk_full", "of": ["worker-1"], "at": {"step": 18}, "lasts": "300ms"},
    {"kind": "disk_full", "of": ["server-0"], "at": {"step": 28}, "lasts": "300ms"},
]


def test_training_goes_on_with_full_disks(tmp_path: Path, engine: str) -> None:
    """One checkpoint is due while a disk is full, also on a host that is twice as slow: steps take 50 ms.

    The files of the other nodes are written, and the bits are those of a training with room.
    """
    run = run_faults(tmp_path, engine, FULL_DISKS, STRATEGIES, recovery=RECOVERY, attempts=1)
    undisturbed = run_faults(tmp_path, "simulated", [], STRATEGIES)

    assert {(outcome.status, outcome.reason) for outcome in run.statuses} == {("success", "")}
    for strategy, expected in (("ring", [("worker-1", 20)]), ("ps", [("server-0", 30), ("worker-1", 20)])):
        failures = logged_events(run, strategy, "checkpoint_failed")
        assert [(node, event["metadata"]["step"]) for node, event in failures] == expected
        assert all("No space left on device" in event["value"]["reason"] for _, event in failures)
        complete = [event["metadata"]["step"] for _, event in logged_events(run, strategy, "checkpoint_complete")]
        assert complete == [step for step in (10, 20, 30, 40) if step not in {step for _, step in expected}]
        digests = [logged_events(each, strategy, "params_sha256") for each in (run, undisturbed)]
        assert [event["value"] for node, event in digests[0] if node == COORDINATOR] == [
            event["value"] for node, event in digests[1] if node == COORDINATOR
        ]
