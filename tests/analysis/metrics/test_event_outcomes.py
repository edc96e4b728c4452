"""What events did: for how long they blocked workers, and which of them had no effect."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.metrics.event_outcomes import PlannedVsActualTimes, find_event_times

RunSimulated = Callable[..., Any]
RING = {"ring": {"kind": "all_reduce"}}
REJOIN = {"on_failure": "rejoin", "restart_delay": "200ms", "heartbeat_timeout": "200ms", "checkpoint": {"steps": 6}}
KILL = {"kind": "kill", "of": ["worker-1"], "at": {"time": "600ms"}}
AGAIN = KILL | {"at": {"time": "650ms"}}
PARTITION = {"kind": "partition", "apart": ["worker-1"], "at": {"time": "300ms"}, "lasts": "400ms"}
DISK_FULL = {"kind": "disk_full", "of": ["worker-1"], "at": {"time": "300ms"}, "lasts": "400ms"}


@pytest.fixture
def events_of(run_simulated: RunSimulated) -> Callable[..., list[PlannedVsActualTimes]]:
    """Returns the events of a ring on four workers, whose step takes about 60 ms."""

    def run(*events: dict[str, Any], **overrides: Any) -> list[PlannedVsActualTimes]:
        (trial,) = run_simulated(RING, scenario_overrides={"events": list(events), **overrides}).trials
        return find_event_times(trial)

    return run


def test_a_partition_blocks_workers_for_its_duration(events_of: Callable[..., Any]) -> None:
    """The exchange that a step has anyway is not counted."""
    (partition,) = events_of(PARTITION)

    assert 0.3 < partition.least_blocked_s <= partition.most_blocked_s < 0.41


def test_events_that_change_no_times_block_no_worker(events_of: Callable[..., Any]) -> None:
    (disk_full,) = events_of(DISK_FULL, recovery=REJOIN)

    assert disk_full.applied_s == pytest.approx(0.3)
    assert (disk_full.least_blocked_s, disk_full.most_blocked_s, disk_full.changes_times) == (None, None, False)


@pytest.mark.parametrize("events", [[PARTITION | {"lasts": "1.5s"}, KILL], [KILL]], ids=["partition", "kill"])
def test_blocked_time_is_not_measured_where_a_step_is_broken_off(
    events_of: Callable[..., Any], events: list[dict[str, Any]]
) -> None:
    first, *_ = events_of(*events, recovery=REJOIN)

    assert first.applied_s is not None
    assert first.most_blocked_s is None


@pytest.mark.parametrize(("applied_s", "reason"), [(0.65, "was already lost"), (1.3, "had already ended")])
def test_a_node_that_has_returned_is_not_called_lost(
    run_simulated: RunSimulated, applied_s: float, reason: str
) -> None:
    """The node is lost at 0.6 s and a member again after about 0.4 s. The second kill changes nothing."""
    overrides = {"events": [KILL, AGAIN], "recovery": REJOIN}
    (trial,) = run_simulated(RING, scenario_overrides=overrides).trials
    (returned_s,) = (each.time_s for each in trial.membership.epochs if each.has_returned("worker-1"))
    assert 0.65 < returned_s < 1.3
    events = trial.events.assign(applied_s=trial.events["applied_s"].where(trial.events["number"] == 0, applied_s))

    (_, second) = find_event_times(replace(trial, events=events))

    assert second.applied_s is None
    assert second.no_effect_reason == f"the node {reason}"
