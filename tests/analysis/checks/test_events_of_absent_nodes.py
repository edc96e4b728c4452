"""Check of planned events, node by node: nodes that are away apply none, and all others apply all of them."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.checks.training.event_lateness import check_planned_event_lateness
from analysis.checks.verdict import VerdictLevel

RunSimulated = Callable[..., Any]
Line = Callable[..., str]
VALID, INVALID = VerdictLevel.VALID, VerdictLevel.INVALID
REJOIN = {"on_failure": "rejoin", "restart_delay": "200ms", "heartbeat_timeout": "200ms", "checkpoint": {"steps": 6}}
RESTORE = REJOIN | {"on_failure": "restore"}
KILL = {"kind": "kill", "of": ["worker-1"], "at": {"time": "600ms"}}  # a step takes about 60 ms
PAIR = ["worker-0", "worker-1"]
EVENTS: dict[str, dict[str, Any]] = {
    "disk_full": {"kind": "disk_full", "of": PAIR},
    "slowdown": {"kind": "slowdown", "of": PAIR, "factor": 1.5},
    "link": {"kind": "link", "of": PAIR, "uplink": "50mbit"},
}
MOMENTS: dict[str, dict[str, Any]] = {
    "begins while away": {"at": {"time": "700ms"}, "lasts": "5s"},
    "ends while away": {"at": {"time": "200ms"}, "lasts": "500ms"},
    "within the absence": {"at": {"time": "650ms"}, "lasts": "50ms"},
    "spans the absence": {"at": {"time": "100ms"}, "lasts": "1.5s"},
    "step before the kill": {"at": {"step": 7}, "lasts": "150ms"},
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", EVENTS)
@pytest.mark.parametrize("recovery", [REJOIN, RESTORE], ids=["rejoin", "restore"])
def test_events_of_a_node_that_is_away_are_not_missing(
    run_simulated: RunSimulated, kind: str, moment: str, recovery: dict[str, Any]
) -> None:
    overrides = {"recovery": recovery, "events": [EVENTS[kind] | MOMENTS[moment], KILL]}

    (trial,) = run_simulated({"ring": {"kind": "all_reduce"}}, scenario_overrides=overrides).trials

    assert trial.membership.losses
    verdict = check_planned_event_lateness(trial)
    assert verdict.level == VALID, verdict.reason


@pytest.mark.parametrize(("phase", "kind"), [("begin", "slowdown"), ("end", "disk_full"), ("begin", "link")])
def test_every_member_must_apply_an_event(
    make_trial: Callable[..., Any], line: Line, steps_line: Line, phase: str, kind: str
) -> None:
    """worker-1 is a member all the time, but does not apply the event."""
    change = EVENTS[kind] | {"at": {"time": "1s"}, "lasts": "1s"}
    moments = {"begin": 1.0, "end": 2.0}
    logs = {"coordinator": [line("run_start", time_s=10), line("run_stop", time_s=20)]}
    for name in PAIR:
        phases = [each for each in moments if name == "worker-0" or each != phase]
        values = [
            {"number": 0, "kind": kind, "phase": each, "by": "transport", "lateness_s": 0.0}
            | {"planned_s": moments[each], "applied_s": moments[each]}
            for each in phases
        ]
        applied = [line("event_applied", value, 10 + value["planned_s"], name) for value in values]
        logs[name] = [steps_line([{"start_s": 10.0 + step} for step in range(9)], name), *applied]
    nodes = [{"name": name, "role": "worker", "rank": rank} for rank, name in enumerate(PAIR)]
    event = {"number": 0, "time_s": 1.0, "step": None, "change": change}

    verdict = check_planned_event_lateness(make_trial(logs, workers=2, events=[event], nodes=nodes))

    assert verdict.level == INVALID
    assert verdict.reason == f"planned events were due but never applied: {kind} 0 {phase} on worker-1"


def test_the_kernel_changes_the_links_of_all_nodes_at_once(
    make_trial: Callable[..., Any], line: Line, steps_line: Line, tmp_path: Any
) -> None:
    """The engine records the nodes whose links changed: none that another event has already changed to the same."""
    change = EVENTS["link"] | {"at": {"time": "1s"}}
    event = {"number": 0, "time_s": 1.0, "step": None, "change": change}
    row = '{"number": 0, "kind": "link", "phase": "begin", "by": "netlink", "planned_s": 1.0, "applied_s": 1.0, '
    (tmp_path / "trials" / "000-t").mkdir(parents=True)
    (tmp_path / "trials" / "000-t" / "events.jsonl").write_text(row + '"lateness_s": 0.0, "nodes": ["worker-0"]}\n')
    logs = {"coordinator": [line("run_start", time_s=10), line("run_stop", time_s=20)]}
    logs |= {name: [steps_line([{"start_s": 10.0 + step} for step in range(9)], name)] for name in PAIR}

    assert check_planned_event_lateness(make_trial(logs, workers=2, events=[event])).level == VALID
