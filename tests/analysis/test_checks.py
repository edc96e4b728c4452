"""Every check: a log that passes, a log that does not."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.checks.host.host_cpu import host_cpu
from analysis.checks.host.missed_deadlines import missed_deadlines
from analysis.checks.network.bytes_on_wire import bytes_on_wire
from analysis.checks.network.rates import rates
from analysis.checks.training.exit_codes import exit_codes
from analysis.checks.training.replicas import replicas
from analysis.checks.training.staleness_law import staleness_law
from analysis.checks.verdict import Level, degraded, invalid, valid, worst
from analysis.reading.run_table import TrialTable

MakeTrial = Callable[..., TrialTable]
Line = Callable[..., str]
Rows = list[list[float]]
InOrder = Callable[..., Rows]


ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
LINKED = [{"name": "worker-0", "role": "worker", "rank": 0, "uplink_bps": 100e6}]


def test_the_worst_verdict_wins() -> None:
    assert worst([valid("a"), invalid("b"), degraded("c")]) == Level.INVALID
    assert worst([]) == Level.VALID


@pytest.mark.parametrize(("missed", "level"), [(2, Level.VALID), (3, Level.INVALID)])
def test_more_than_one_percent_of_missed_deadlines_is_invalid(
    make_trial: MakeTrial, stop_line: Line, missed: int, level: Level
) -> None:
    logs = {
        "worker-0": [stop_line("worker-0", deadlines=100, missed_deadlines=0)],
        "worker-1": [stop_line("worker-1", deadlines=100, missed_deadlines=missed)],
    }

    found = missed_deadlines(make_trial(logs, workers=2))

    assert found.level == level
    assert found.reason.startswith(f"{missed / 200:.1%} of the deadlines were missed")


def test_unpaced_nodes_miss_nothing(make_trial: MakeTrial, stop_line: Line) -> None:
    assert missed_deadlines(make_trial({"worker-0": [stop_line("worker-0")]})).level == Level.VALID


@pytest.mark.parametrize(
    ("shaped", "level"),
    [
        ({"rung": "tc-htb", "read_back_uplink_bps": 99e6}, Level.VALID),
        ({"rung": "tc-htb", "read_back_uplink_bps": 90e6}, Level.INVALID),
        ({"rung": "tc-htb", "read_back_uplink_bps": None}, Level.DEGRADED),
        ({"rung": "fluid"}, Level.VALID),
        ({"rung": "none"}, Level.INVALID),
    ],
)
def test_link_rates_are_read_back_within_five_percent(
    make_trial: MakeTrial, shaped: dict[str, Any], level: Level
) -> None:
    trial = make_trial({}, status={"shaping": {"worker-0": shaped}}, nodes=LINKED)

    assert rates(trial).level == level


def test_a_declared_rate_that_nobody_applied_is_invalid(make_trial: MakeTrial) -> None:
    assert rates(make_trial({}, nodes=LINKED)).level == Level.INVALID


@pytest.mark.parametrize(("sent", "level"), [(202, Level.VALID), (203, Level.INVALID), (190, Level.INVALID)])
def test_bytes_must_agree_with_the_routes_within_one_percent(
    make_trial: MakeTrial, steps_line: Line, stop_line: Line, sent: int, level: Level
) -> None:
    lines = [steps_line([{}, {}], "worker-0"), stop_line("worker-0", payload_bytes_sent=sent)]

    assert bytes_on_wire(make_trial({"worker-0": lines}, bytes_per_step={"worker-0": 100})).level == level


def test_a_server_that_never_said_what_it_sent_is_degraded(make_trial: MakeTrial, steps_line: Line) -> None:
    trial = make_trial({"worker-0": [steps_line([{}], "worker-0")]}, bytes_per_step={"worker-0": 100, "server-0": 100})

    assert bytes_on_wire(trial) == degraded("server-0: no count of bytes sent")


@pytest.mark.parametrize(("second", "level"), [("a", Level.VALID), ("b", Level.INVALID)])
def test_synchronous_replicas_must_agree_to_the_last_bit(
    make_trial: MakeTrial, line: Line, second: str, level: Level
) -> None:
    logs = {
        "worker-0": [line("node_hash", "a", node="worker-0", step=10)],
        "worker-1": [line("node_hash", second, node="worker-1", step=10)],
    }

    assert replicas(make_trial(logs, workers=2)).level == level


def test_asynchronous_replicas_may_differ(make_trial: MakeTrial, line: Line) -> None:
    logs = {f"worker-{rank}": [line("node_hash", str(rank), step=10)] for rank in (0, 1)}

    assert replicas(make_trial(logs, workers=2, strategy=ASP)).level == Level.VALID


@pytest.mark.parametrize("reporting", [0, 1])
def test_replicas_that_do_not_report_are_degraded(make_trial: MakeTrial, line: Line, reporting: int) -> None:
    logs = {f"worker-{rank}": [line("node_hash", "a", step=10)] for rank in range(reporting)}

    assert replicas(make_trial(logs, workers=2)).level == Level.DEGRADED


@pytest.fixture
def updated(make_trial: MakeTrial, updates_line: Line) -> Callable[..., TrialTable]:
    """A trial of three workers whose server made these updates."""

    def make(rows: Rows, synchrony: dict[str, Any]) -> TrialTable:
        strategy = {"kind": "parameter_server", "synchrony": synchrony}
        return make_trial({"server-0": [updates_line(rows)]}, workers=3, strategy=strategy)

    return make


@pytest.mark.parametrize("order", ["012012012012", "001002001002", "0000"])
def test_where_nobody_waits_ages_follow_from_the_order_of_updates(
    updated: Callable[..., TrialTable], in_order: InOrder, order: str
) -> None:
    """At any mix of speeds; a push that is lost, doubled or answered late shows."""
    rows = in_order(map(int, order))

    assert staleness_law(updated(rows, {"kind": "asp"})).level == Level.VALID
    for lost in range(1, len(rows) - 1):
        if any(row[1] == rows[lost][1] for row in rows[lost + 1 :]):
            assert staleness_law(updated(rows[:lost] + rows[lost + 1 :], {"kind": "asp"})).level == Level.INVALID


def test_an_age_that_the_order_contradicts_is_named(updated: Callable[..., TrialTable], in_order: InOrder) -> None:
    rows = in_order((0, 1, 2, 0, 1, 2))
    rows[4][3] += 1

    reason = "update 5 is by a gradient of age 3; 2 is what the order of updates makes it"
    assert staleness_law(updated(rows, {"kind": "asp"})) == invalid(reason)


@pytest.mark.parametrize("synchrony", [{"kind": "ssp", "staleness": 2}, {"kind": "dssp", "low": 1, "high": 2}], ids=str)
@pytest.mark.parametrize(
    ("order", "ahead", "level"),
    [
        ("001201201212", 1, Level.VALID),
        ("000121212", 2, Level.VALID),
        ("0000121212", 3, Level.INVALID),
        ("010101012", 3, Level.INVALID),
        ("0120101010101", 0, Level.VALID),  # 2 has left
    ],
)
def test_nobody_is_further_ahead_than_its_bound(
    updated: Callable[..., TrialTable],
    in_order: InOrder,
    synchrony: dict[str, Any],
    order: str,
    ahead: int,
    level: Level,
) -> None:
    found = staleness_law(updated(in_order(map(int, order)), synchrony))

    assert found.level == level
    assert f"{ahead} steps ahead of the slowest at most, of 2" in found.reason


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ({"exit_codes": {"worker-0": 0}}, Level.VALID),
        ({"exit_codes": {"worker-0": 137}}, Level.INVALID),
        ({"exit_codes": {"worker-0": 0}, "status": "aborted", "reason": "interrupted"}, Level.INVALID),
        ({"exit_codes": {}}, Level.DEGRADED),
    ],
)
def test_every_node_must_end_well(make_trial: MakeTrial, status: dict[str, Any], level: Level) -> None:
    assert exit_codes(make_trial({}, status=status, nodes=LINKED)).level == level


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ({"host": {"cpu_busy": 0.5}}, Level.VALID),
        ({"host": {"cpu_busy": 0.99}}, Level.DEGRADED),
        ({}, Level.DEGRADED),
        ({"engine": "simulated"}, Level.VALID),
    ],
)
def test_a_busy_host_degrades_only_real_time(make_trial: MakeTrial, status: dict[str, Any], level: Level) -> None:
    assert host_cpu(make_trial({}, status=status)).level == level
