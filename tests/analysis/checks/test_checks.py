"""Every check: a log that passes, and a log that fails."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.checks.host.host_cpu import check_host_cpu_load
from analysis.checks.host.missed_deadlines import check_missed_step_deadlines
from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.network.rates import check_configured_link_rates
from analysis.checks.training.exit_codes import check_exit_codes
from analysis.checks.training.replicas import check_model_replicas_agree
from analysis.checks.training.staleness import check_gradient_staleness
from analysis.checks.verdict import VerdictLevel, degraded_verdict, invalid_verdict, valid_verdict, worst_verdict_level
from analysis.reading.run_table import TrialLogTables

MakeTrial = Callable[..., TrialLogTables]
Line = Callable[..., str]
Rows = list[list[float]]
OrderedUpdates = Callable[..., Rows]


ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
LINKED = [{"name": "worker-0", "role": "worker", "rank": 0, "uplink_bps": 100e6}]


def test_the_worst_level_of_several_verdicts_is_returned() -> None:
    assert (
        worst_verdict_level([valid_verdict("a"), invalid_verdict("b"), degraded_verdict("c")]) == VerdictLevel.INVALID
    )
    assert worst_verdict_level([]) == VerdictLevel.VALID


@pytest.mark.parametrize(("missed", "level"), [(2, VerdictLevel.VALID), (3, VerdictLevel.INVALID)])
def test_more_than_one_percent_of_missed_deadlines_is_invalid(
    make_trial: MakeTrial, stop_line: Line, missed: int, level: VerdictLevel
) -> None:
    logs = {
        "worker-0": [stop_line("worker-0", deadlines=100, missed_deadlines=0)],
        "worker-1": [stop_line("worker-1", deadlines=100, missed_deadlines=missed)],
    }

    verdict = check_missed_step_deadlines(make_trial(logs, workers=2))

    assert verdict.level == level
    assert verdict.reason.startswith(f"{missed / 200:.1%} of the deadlines were missed")


def test_unpaced_nodes_miss_no_deadlines(make_trial: MakeTrial, stop_line: Line) -> None:
    assert check_missed_step_deadlines(make_trial({"worker-0": [stop_line("worker-0")]})).level == VerdictLevel.VALID


@pytest.mark.parametrize(
    ("shaped", "level"),
    [
        ({"rung": "tc-htb", "read_back_uplink_bps": 99e6}, VerdictLevel.VALID),
        ({"rung": "tc-htb", "read_back_uplink_bps": 90e6}, VerdictLevel.INVALID),
        ({"rung": "tc-htb", "read_back_uplink_bps": None}, VerdictLevel.DEGRADED),
        ({"rung": "fluid"}, VerdictLevel.VALID),
        ({"rung": "none"}, VerdictLevel.INVALID),
    ],
)
def test_link_rates_are_read_back_within_five_percent(
    make_trial: MakeTrial, shaped: dict[str, Any], level: VerdictLevel
) -> None:
    trial = make_trial({}, status={"shaping": {"worker-0": shaped}}, nodes=LINKED)

    assert check_configured_link_rates(trial).level == level


def test_a_declared_rate_that_was_not_applied_is_invalid(make_trial: MakeTrial) -> None:
    assert check_configured_link_rates(make_trial({}, nodes=LINKED)).level == VerdictLevel.INVALID


@pytest.mark.parametrize(
    ("sent", "level"), [(202, VerdictLevel.VALID), (203, VerdictLevel.INVALID), (190, VerdictLevel.INVALID)]
)
def test_bytes_must_agree_with_the_routes_within_one_percent(
    make_trial: MakeTrial, steps_line: Line, stop_line: Line, sent: int, level: VerdictLevel
) -> None:
    lines = [steps_line([{}, {}], "worker-0"), stop_line("worker-0", payload_bytes_sent=sent)]

    assert check_bytes_sent(make_trial({"worker-0": lines}, bytes_per_step={"worker-0": 100})).level == level


def test_a_server_without_a_count_of_bytes_sent_is_degraded(make_trial: MakeTrial, steps_line: Line) -> None:
    trial = make_trial({"worker-0": [steps_line([{}], "worker-0")]}, bytes_per_step={"worker-0": 100, "server-0": 100})

    assert check_bytes_sent(trial) == degraded_verdict("the bytes sent were not counted for server-0")


@pytest.mark.parametrize(("second", "level"), [("a", VerdictLevel.VALID), ("b", VerdictLevel.INVALID)])
def test_synchronous_replicas_must_agree_to_the_last_bit(
    make_trial: MakeTrial, line: Line, second: str, level: VerdictLevel
) -> None:
    logs = {
        "worker-0": [line("node_hash", "a", node="worker-0", step=10)],
        "worker-1": [line("node_hash", second, node="worker-1", step=10)],
    }

    assert check_model_replicas_agree(make_trial(logs, workers=2)).level == level


def test_asynchronous_replicas_may_differ(make_trial: MakeTrial, line: Line) -> None:
    logs = {f"worker-{rank}": [line("node_hash", str(rank), step=10)] for rank in (0, 1)}

    assert check_model_replicas_agree(make_trial(logs, workers=2, strategy=ASP)).level == VerdictLevel.VALID


@pytest.mark.parametrize("reporting", [0, 1])
def test_replicas_that_do_not_report_are_degraded(make_trial: MakeTrial, line: Line, reporting: int) -> None:
    logs = {f"worker-{rank}": [line("node_hash", "a", step=10)] for rank in range(reporting)}

    assert check_model_replicas_agree(make_trial(logs, workers=2)).level == VerdictLevel.DEGRADED


@pytest.mark.parametrize(
    ("returned", "level"),
    [("b", VerdictLevel.VALID), ("other", VerdictLevel.INVALID), (None, VerdictLevel.DEGRADED)],
)
def test_workers_that_have_joined_again_are_compared_from_then_on(
    make_trial: MakeTrial, line: Line, returned: str | None, level: VerdictLevel
) -> None:
    """Both workers are lost once. Before the last change, sums of one worker and of both are rounded differently."""
    both = ["worker-0", "worker-1"]
    losses = [
        line("node_lost", {"node": name, "reason": "", "silent_s": 1.0}, time_s)
        for name, time_s in zip(both, (1.0, 5.0), strict=True)
    ]
    epochs = [
        line("membership_epoch", {"epoch": number, "workers": workers, "cause": ""}, time_s)
        for number, workers, time_s in ((1, both[1:], 1.0), (2, both, 2.0), (3, both[:1], 5.0), (4, both, 6.0))
    ]
    recoveries = [line("recovery", {"epoch": 4, "seconds": 0.1}, 6.1, name, step=10) for name in both]
    logs = {
        "coordinator": [line("run_start"), *losses, *epochs],
        "worker-0": [recoveries[0], line("node_hash", "old", 6.0, "worker-0", step=10)],
        "worker-1": [recoveries[1], line("node_hash", "older", 4.0, "worker-1", step=10)],
    }
    logs["worker-0"].append(line("node_hash", "b", 9.0, "worker-0", step=20))
    if returned is not None:
        logs["worker-1"].append(line("node_hash", returned, 9.0, "worker-1", step=20))

    assert check_model_replicas_agree(make_trial(logs, workers=2)).level == level


@pytest.fixture
def trial_with_updates(make_trial: MakeTrial, updates_line: Line) -> Callable[..., TrialLogTables]:
    """A trial of three workers whose server made these updates."""

    def make(rows: Rows, synchrony: dict[str, Any]) -> TrialLogTables:
        strategy = {"kind": "parameter_server", "synchrony": synchrony}
        return make_trial({"server-0": [updates_line(rows)]}, workers=3, strategy=strategy)

    return make


@pytest.mark.parametrize("order", ["012012012012", "001002001002", "0000"])
def test_asynchronous_staleness_follows_from_the_order_of_updates(
    trial_with_updates: Callable[..., TrialLogTables], ordered_updates: OrderedUpdates, order: str
) -> None:
    """For any mix of speeds; an update that is lost, doubled or answered late is found."""
    rows = ordered_updates(map(int, order))

    assert check_gradient_staleness(trial_with_updates(rows, {"kind": "asp"})).level == VerdictLevel.VALID
    for lost_row in range(1, len(rows) - 1):
        if any(row[1] == rows[lost_row][1] for row in rows[lost_row + 1 :]):
            assert (
                check_gradient_staleness(
                    trial_with_updates(rows[:lost_row] + rows[lost_row + 1 :], {"kind": "asp"})
                ).level
                == VerdictLevel.INVALID
            )


def test_staleness_that_contradicts_the_order_of_updates_is_reported(
    trial_with_updates: Callable[..., TrialLogTables], ordered_updates: OrderedUpdates
) -> None:
    rows = ordered_updates((0, 1, 2, 0, 1, 2))
    rows[4][3] += 1

    reason = "update 5 used a gradient of staleness 3; the order of updates gives 2"
    assert check_gradient_staleness(trial_with_updates(rows, {"kind": "asp"})) == invalid_verdict(reason)


@pytest.mark.parametrize("synchrony", [{"kind": "ssp", "staleness": 2}, {"kind": "dssp", "low": 1, "high": 2}], ids=str)
@pytest.mark.parametrize(
    ("order", "ahead", "level"),
    [
        ("001201201212", 1, VerdictLevel.VALID),
        ("000121212", 2, VerdictLevel.VALID),
        ("0000121212", 3, VerdictLevel.INVALID),
        ("010101012", 3, VerdictLevel.INVALID),
        ("0120101010101", 0, VerdictLevel.VALID),  # 2 has left
    ],
)
def test_no_worker_may_exceed_its_staleness_bound(
    trial_with_updates: Callable[..., TrialLogTables],
    ordered_updates: OrderedUpdates,
    synchrony: dict[str, Any],
    order: str,
    ahead: int,
    level: VerdictLevel,
) -> None:
    verdict = check_gradient_staleness(trial_with_updates(ordered_updates(map(int, order)), synchrony))

    assert verdict.level == level
    assert f"at most {ahead} steps ahead of the slowest worker (limit 2)" in verdict.reason


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ({"exit_codes": {"worker-0": 0}}, VerdictLevel.VALID),
        ({"exit_codes": {"worker-0": 137}}, VerdictLevel.INVALID),
        ({"exit_codes": {"worker-0": 0}, "status": "aborted", "reason": "interrupted"}, VerdictLevel.INVALID),
        ({"exit_codes": {}}, VerdictLevel.DEGRADED),
    ],
)
def test_every_node_must_end_without_error(make_trial: MakeTrial, status: dict[str, Any], level: VerdictLevel) -> None:
    assert check_exit_codes(make_trial({}, status=status, nodes=LINKED)).level == level


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ({"host": {"cpu_busy": 0.5}}, VerdictLevel.VALID),
        ({"host": {"cpu_busy": 0.99}}, VerdictLevel.DEGRADED),
        ({}, VerdictLevel.DEGRADED),
        ({"engine": "simulated"}, VerdictLevel.VALID),
    ],
)
def test_a_busy_host_degrades_only_real_time(
    make_trial: MakeTrial, status: dict[str, Any], level: VerdictLevel
) -> None:
    assert check_host_cpu_load(make_trial({}, status=status)).level == level
