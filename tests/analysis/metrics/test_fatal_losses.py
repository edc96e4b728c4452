"""Losses that end a trial: they are in no log of the coordinator, but each of them is a lost node."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from analysis.checks.training.exit_codes import check_exit_codes
from analysis.checks.verdict import VerdictLevel
from analysis.metrics.goodput import list_node_losses
from analysis.reading.run_table import TrialLogTables
from tests.support.json_schema import find_subschema

CAUSE = "was killed at step 50, as declared in events[0]"
MakeTrial = Callable[..., TrialLogTables]


@pytest.fixture
def killed_trial(make_trial: MakeTrial, line: Callable[..., str]) -> MakeTrial:
    """Makes a trial whose nodes `of` are killed at step 50, after 9 s; the simulation records it if `is_recorded`."""

    def make(of: list[str], policy: str = "abort", *, is_recorded: bool = True, **status: Any) -> TrialLogTables:
        applied = {"number": 0, "kind": "kill", "phase": "begin", "planned_s": 9.0, "applied_s": 9.0, "nodes": of}
        logs = {"coordinator": [line("run_start")]}
        if is_recorded:
            logs["coordinator"].append(line("event_applied", applied, 9.0))
        change = {"kind": "kill", "of": of, "at": {"step": 50}}
        return make_trial(
            logs,
            {"status": "failed", "reason": f"{of[0]} {CAUSE}", **status},
            events=[{"number": 0, "time_s": None, "step": 50, "change": change}],
            recovery={"on_failure": policy},
        )

    return make


@pytest.mark.parametrize(
    ("nodes", "policy"),
    [
        (["worker-1"], "abort"),
        (["worker-1", "worker-2"], "abort"),
        (["coordinator"], "rejoin"),
        (["server-0"], "continue"),
    ],
)
def test_each_node_of_a_fatal_event_is_lost(
    killed_trial: MakeTrial, nodes: list[str], policy: str, pytestconfig: pytest.Config
) -> None:
    losses = list_node_losses(killed_trial(nodes, policy))

    assert [(loss.node, loss.time_s, loss.reason) for loss in losses] == [(node, 9.0, CAUSE) for node in nodes]
    assert {(loss.detection_s, loss.epoch, loss.recovery_s, loss.lost_s) for loss in losses} == {(None,) * 4}
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate([vars(loss) for loss in losses], find_subschema(schema, "node_losses"))


def test_a_trial_that_ended_by_another_error_has_no_fatal_loss(killed_trial: MakeTrial) -> None:
    """Neither has a trial whose engine recorded no applied event, nor one that did not fail."""
    assert list_node_losses(killed_trial(["worker-1"], reason="DeadlineExceeded: no reply")) == []
    assert list_node_losses(killed_trial(["worker-1"], is_recorded=False)) == []
    assert list_node_losses(killed_trial(["worker-1"], status="success")) == []


def test_a_loss_that_the_coordinator_logged_is_listed_once(make_trial: MakeTrial, line: Callable[..., str]) -> None:
    """Under `continue`, a worker is lost and logged before the loss of a server ends the trial."""

    def killed(number: int, node: str, time_s: float) -> str:
        value = {"number": number, "kind": "kill", "phase": "begin", "planned_s": time_s, "applied_s": time_s}
        return line("event_applied", value | {"nodes": [node]}, time_s)

    lost = line("node_lost", {"node": "worker-1", "reason": "no heartbeat", "silent_s": 1.0}, 5.0)
    logs = {"coordinator": [line("run_start"), killed(0, "worker-1", 4.0), lost, killed(1, "server-0", 9.0)]}
    events = [
        {
            "number": number,
            "time_s": time_s,
            "step": None,
            "change": {"kind": "kill", "of": [node], "at": {"time": f"{time_s:g}s"}},
        }
        for number, (node, time_s) in enumerate([("worker-1", 4.0), ("server-0", 9.0)])
    ]
    reason = "server-0 was killed at 9 s, as declared in events[0]"

    trial = make_trial(logs, {"status": "failed", "reason": reason}, events=events, recovery={"on_failure": "continue"})

    losses = list_node_losses(trial)
    assert [(loss.node, loss.time_s, loss.reason) for loss in losses] == [
        ("worker-1", 5.0, "no heartbeat"),
        ("server-0", 9.0, "was killed at 9 s, as declared in events[0]"),
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (f"worker-1 {CAUSE}", f"worker-1 {CAUSE}"),
        (f"worker-1 {CAUSE}; the network could not be removed", "coordinator exited with code 1"),
        ("DeadlineExceeded: no reply", "coordinator exited with code 1"),
    ],
)
def test_reason_of_the_verdict_is_the_declared_cause(killed_trial: MakeTrial, reason: str, expected: str) -> None:
    """The exit codes follow from it. They are the reason if anything else is reported."""
    verdict = check_exit_codes(killed_trial(["worker-1"], reason=reason, exit_codes={"coordinator": 1}))

    assert (verdict.level, verdict.reason) == (VerdictLevel.INVALID, expected)
