"""Checks of the emulation: synthetic records of a good host and of every kind of bad host."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.checks import Check
from analysis.checks.host.cpu_quota_speed import check_worker_speed_fits_quota
from analysis.checks.host.cpu_throttling import check_cpu_throttling
from analysis.checks.host.host_overhead import check_host_added_time
from analysis.checks.host.host_pressure import check_host_resource_pressure
from analysis.checks.host.time_dilation import check_time_dilation
from analysis.checks.host.wakeup_delay import check_wakeup_delay
from analysis.checks.network.achieved_rates import check_measured_link_rates
from analysis.checks.network.mechanisms import check_shaping_enforced
from analysis.checks.network.message_times import check_probe_message_times
from analysis.checks.network.queue_drops import check_queue_drops
from analysis.checks.network.round_trips import check_round_trips
from analysis.checks.network.shared_links import check_shared_link_rates
from analysis.checks.training.event_horizon import check_events_cover_trial
from analysis.checks.training.event_lateness import check_planned_event_lateness
from analysis.checks.verdict import VerdictLevel
from analysis.metrics.achieved_properties import list_achieved_properties
from analysis.reading.run_table import TrialLogTables

MakeTrial = Callable[..., TrialLogTables]
Line = Callable[..., str]
StepsLine = Callable[..., str]

VALID, DEGRADED, INVALID = VerdictLevel
PACED = {"role": "worker", "throughput": 100.0, "uplink_bps": 1e8, "downlink_bps": 1e8}
NODES = [{"name": f"worker-{rank}", "rank": rank, **PACED} for rank in range(2)]
FAR = {"paths": [{"source": f"worker-{a}", "target": f"worker-{1 - a}", "delay_s": 0.005} for a in range(2)]}
LOSSY = {"paths": [{"source": "worker-0", "target": "worker-1", "losses": [{"kind": "independent", "share": 0.01}]}]}
PAUSE = {"kind": "pause", "at": {"time": "1s"}, "of": ["worker-0"], "lasts": "500ms"}


def shaping(**properties: Any) -> dict[str, Any]:
    """The same record of both workers' links, on containers."""
    return {"engine": "docker", "shaping": {node["name"]: {"rung": "tc-htb", **properties} for node in NODES}}


def round_trip_record(seconds: float) -> dict[str, float]:
    """A round trip as the engine records it."""
    return {"declared": 0.01, "achieved": seconds}


def throttling_record(throttled_s: float, run_s: float = 10.0) -> dict[str, Any]:
    """Counters of both workers, which a dilated run leaves idle in most periods."""
    counted = {"periods": 100, "throttled_periods": 20, "throttled_s": throttled_s}
    return {"engine": "docker", "timings_s": {"run": run_s}, "throttling": {node["name"]: counted for node in NODES}}


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ({"host": {"canary_late_ms": {"p50": 0.1, "p99": 4.9, "max": 30.0}}}, VALID),
        ({"host": {"canary_late_ms": {"p50": 0.1, "p99": 5.1, "max": 30.0}}}, DEGRADED),
        ({"host": {"cpu_busy": 0.2}}, DEGRADED),
        ({"engine": "simulated"}, VALID),
    ],
)
def test_a_host_that_wakes_threads_late_is_degraded(
    make_trial: MakeTrial, status: dict[str, Any], level: VerdictLevel
) -> None:
    assert check_wakeup_delay(make_trial({}, status=status)).level == level


@pytest.mark.parametrize(
    ("status", "level"),
    [
        (throttling_record(0.10), VALID),
        (throttling_record(0.11), DEGRADED),
        (throttling_record(0.11, run_s=20.0), VALID),
        (throttling_record(0.0) | {"timings_s": {}}, DEGRADED),
        ({"engine": "docker"}, DEGRADED),
        ({"engine": "local"}, VALID),
    ],
)
def test_paced_nodes_must_not_be_throttled_by_their_cpu_quota(
    make_trial: MakeTrial, status: dict[str, Any], level: VerdictLevel
) -> None:
    assert check_cpu_throttling(make_trial({}, status=status, nodes=NODES)).level == level


def test_a_coordinator_may_evaluate_in_bursts(make_trial: MakeTrial) -> None:
    """No worker waits for the coordinator; in a dilated run it was throttled in a fifth of its periods."""
    status = throttling_record(0.0)
    status["throttling"]["coordinator"] = {"periods": 1000, "throttled_periods": 187, "throttled_s": 0.9}
    nodes = [*NODES, {"name": "coordinator", "role": "coordinator"}]

    assert check_cpu_throttling(make_trial({}, status=status, nodes=nodes)).level == VALID


def test_a_device_slowed_by_its_cpu_quota_may_be_throttled(make_trial: MakeTrial) -> None:
    slow = [NODES[0], {"name": "worker-1", "role": "worker", "rank": 1, "cpus": 0.5}]
    status = throttling_record(0.0)
    status["throttling"]["worker-1"] = {"periods": 1000, "throttled_periods": 900, "throttled_s": 4.0}

    assert check_cpu_throttling(make_trial({}, status=status, nodes=slow)).level == VALID


@pytest.mark.parametrize(
    ("planned", "status", "level"),
    [
        ({}, shaping(), VALID),
        ({}, shaping(rung="none"), INVALID),
        ({}, shaping(rung="transport"), DEGRADED),
        ({}, shaping(rung="transport") | {"engine": "local"}, VALID),
        ({"network": FAR}, shaping(rungs={"delay": "nfqueue"}), VALID),
        ({"network": FAR}, shaping(rungs={"delay": "transport"}), DEGRADED),
        ({"network": FAR}, shaping(rungs={"delay": "none"}), INVALID),
        ({"network": LOSSY}, shaping(rung="fluid", rungs={"loss": "none"}) | {"engine": "local"}, INVALID),
        ({"network": FAR}, shaping(rungs={"delay": "netem", "buffer": "none"}), DEGRADED),
        ({"network": FAR}, shaping(), DEGRADED),  # the mechanism of the delay is not recorded
        ({"network": LOSSY}, shaping(rungs={"loss": "netem"}), VALID),
    ],
)
def test_properties_that_the_kernel_does_not_enforce_are_degraded_or_invalid(
    make_trial: MakeTrial, planned: dict[str, Any], status: dict[str, Any], level: VerdictLevel
) -> None:
    assert check_shaping_enforced(make_trial({}, status=status, nodes=NODES, **planned)).level == level


def test_the_reason_names_property_mechanism_and_nodes(make_trial: MakeTrial) -> None:
    verdict = check_shaping_enforced(
        make_trial({}, status=shaping(rungs={"delay": "transport"}), nodes=NODES, network=FAR)
    )

    assert verdict.reason == "not enforced by the kernel: delay by transport (worker-0, worker-1)"


@pytest.mark.parametrize(
    ("achieved", "level"),
    [
        ({"achieved_uplink_bps": 0.96e8, "achieved_downlink_bps": 1.04e8}, VALID),
        ({"achieved_uplink_bps": 0.94e8, "achieved_downlink_bps": 1.0e8}, INVALID),
        ({"achieved_uplink_bps": 1.0e8}, DEGRADED),
        ({}, DEGRADED),
    ],
)
def test_a_long_flow_must_reach_the_declared_rate(
    make_trial: MakeTrial, achieved: dict[str, float], level: VerdictLevel
) -> None:
    assert check_measured_link_rates(make_trial({}, status=shaping(**achieved), nodes=NODES)).level == level


def test_the_link_of_a_single_node_needs_no_proof(make_trial: MakeTrial) -> None:
    """The baseline of every sweep: one worker that exchanges nothing."""
    assert check_measured_link_rates(make_trial({}, status=shaping(), nodes=NODES[:1])).level == VALID


def flood_record(declared: float, achieved: float) -> dict[str, Any]:
    """Floods in both directions, as the engine records them."""
    both = {
        direction: {"declared": declared, "achieved": achieved, "tries": [achieved]}
        for direction in ("uplink", "downlink")
    }
    return {"flooded": both, "achieved_uplink_bps": achieved, "achieved_downlink_bps": achieved}


@pytest.mark.parametrize(("achieved", "level"), [(0.79e8, VALID), (0.7e8, INVALID)])
def test_a_link_that_its_peers_cannot_fill_must_carry_all_their_traffic(
    make_trial: MakeTrial, achieved: float, level: VerdictLevel
) -> None:
    """A server link that is faster than all workers together is proven only up to their rate; the reason says so."""
    verdict = check_measured_link_rates(make_trial({}, status=shaping(**flood_record(0.8e8, achieved)), nodes=NODES))

    assert verdict.level == level
    assert ("their peers cannot fill worker-0 uplink and 3 others" in verdict.reason) == (level == VALID)


def test_an_unproven_link_is_degraded_with_its_reason(make_trial: MakeTrial) -> None:
    reasons = {"uplink": "the ways that could fill it lose packets"}

    verdict = check_measured_link_rates(make_trial({}, status=shaping(unproven=reasons), nodes=NODES))

    assert verdict.level == DEGRADED
    assert verdict.reason.endswith("such as worker-0 uplink: the ways that could fill it lose packets")


@pytest.mark.parametrize(
    ("achieved_s", "dilation", "level"),
    [
        (0.0505, 1.0, VALID),
        (0.0534, 1.0, VALID),  # 5 % of it and a millisecond
        (0.0536, 1.0, INVALID),
        (0.0534, 16.0, INVALID),
        (0.1, 1.0, INVALID),
        (0.04, 1.0, INVALID),
    ],
)
def test_a_probe_message_must_take_the_time_of_its_link_rate(
    make_trial: MakeTrial, achieved_s: float, dilation: float, level: VerdictLevel
) -> None:
    """A message that takes twice as long is as wrong as one that was not shaped at all."""
    status = shaping(message_s={"worker-1": {"declared": 0.05, "achieved": achieved_s}})

    assert check_probe_message_times(make_trial({}, status=status, nodes=NODES, dilation=dilation)).level == level


@pytest.mark.parametrize(
    ("host", "level"),
    [
        ({"cpu_steal": 0.01, "pressure": {"cpu": 0.4, "io": 0.01, "memory": 0.0}}, VALID),
        ({"cpu_steal": 0.06, "pressure": {}}, DEGRADED),
        ({"cpu_steal": 0.0, "pressure": {"cpu": 0.95}}, DEGRADED),
        ({"cpu_steal": 0.0, "pressure": {"memory": 0.2}}, DEGRADED),
        ({"cpu_steal": 0.0, "pressure": {}}, VALID),  # a kernel that does not count
        ({}, VALID),
    ],
)
def test_a_host_under_pressure_is_degraded(make_trial: MakeTrial, host: dict[str, Any], level: VerdictLevel) -> None:
    verdict = check_host_resource_pressure(make_trial({}, status={"engine": "docker", "host": host}))

    assert verdict.level == level
    assert ("not counted by this kernel" in verdict.reason) == (level == VALID and not host.get("pressure"))


UP = {"name": "rack-0 up", "rate_bps": 2e8, "sources": ["worker-0"], "targets": ["worker-1"]}


@pytest.mark.parametrize(
    ("record", "level"),
    [
        ({"achieved_pipes_bps": {"rack-0 up": 2.05e8}}, VALID),
        ({"achieved_pipes_bps": {"rack-0 up": 1.8e8}}, INVALID),
        ({"pipes_bps": {"rack-0 up": {"declared": 2e8, "achieved": 2e8}}}, VALID),
        ({}, DEGRADED),
    ],
)
def test_a_shared_link_must_reach_its_declared_rate(
    make_trial: MakeTrial, record: dict[str, Any], level: VerdictLevel
) -> None:
    """Its rate is recorded by the switch between racks or by the node that shapes it."""
    status = shaping()
    status["shaping"]["switch"] = {"rung": "tc-htb", **record}

    assert (
        check_shared_link_rates(make_trial({}, status=status, nodes=NODES, network={"shared_links": [UP]})).level
        == level
    )


@pytest.mark.parametrize(
    ("measured", "level"),
    [
        ({"worker-0": {"worker-1": 0.0109}}, VALID),
        ({"worker-0": {"worker-1": 0.0111}}, INVALID),
        ({"worker-0": {"worker-1": 0.0004}}, INVALID),
        ({}, DEGRADED),
    ],
)
def test_round_trips_must_take_the_declared_delay(
    make_trial: MakeTrial, measured: dict[str, dict[str, float]], level: VerdictLevel
) -> None:
    status = shaping()
    for node, trips in measured.items():
        status["shaping"][node]["round_trip_s"] = {peer: round_trip_record(seconds) for peer, seconds in trips.items()}

    assert check_round_trips(make_trial({}, status=status, nodes=NODES, network=FAR)).level == level


def test_the_tolerance_of_round_trips_is_in_host_time(make_trial: MakeTrial) -> None:
    """0.9 virtual ms are 14 ms of the host at dilation 16: the network is wrong, not a timer late."""
    status = shaping()
    status["shaping"]["worker-0"]["round_trip_s"] = {"worker-1": round_trip_record(0.0109)}

    assert check_round_trips(make_trial({}, status=status, nodes=NODES, network=FAR, dilation=16.0)).level == INVALID


def test_an_undeclared_delay_is_invalid(make_trial: MakeTrial) -> None:
    status = shaping(round_trip_s={"worker-0": round_trip_record(0.004)})

    assert check_round_trips(make_trial({}, status=status, nodes=NODES)).level == INVALID


@pytest.mark.parametrize(
    ("counted", "level"),
    [
        (1, VALID),
        (2, DEGRADED),
        (None, DEGRADED),
    ],
)
def test_queues_must_not_drop_packets_without_declared_loss(
    make_trial: MakeTrial, counted: int | None, level: VerdictLevel
) -> None:
    queues = (
        {} if counted is None else {"eth0": {"packets": 1000, "drops": counted}, "ifb0": {"packets": 9, "drops": 0}}
    )

    assert check_queue_drops(make_trial({}, status=shaping(queues=queues), nodes=NODES)).level == level


def test_queues_of_a_lossy_path_may_drop_packets(make_trial: MakeTrial) -> None:
    queues = {"eth0": {"packets": 1000, "drops": 500}}
    trial = make_trial({}, status=shaping(queues=queues), nodes=NODES, network=LOSSY)

    assert check_queue_drops(trial).level == VALID


@pytest.mark.parametrize(("nodes", "level"), [(["worker-0", "worker-1"], VALID), (["worker-0"], DEGRADED)])
def test_only_queues_of_links_with_an_event_may_drop_packets(
    make_trial: MakeTrial, nodes: list[str], level: VerdictLevel
) -> None:
    change = {"kind": "link", "at": {"time": "1s"}, "of": nodes, "uplink": "10mbit"}
    event = {"number": 0, "time_s": 1.0, "step": None, "change": change}
    status = shaping(queues={"eth0": {"packets": 1000, "drops": 500}})

    assert check_queue_drops(make_trial({}, status=status, nodes=NODES, events=[event])).level == level


def applied_event(line: Line, phase: str, at_s: float, late_s: float) -> str:
    """Log line of a worker that has applied the pause to itself."""
    value = {"number": 0, "kind": "pause", "planned_s": at_s, "applied_s": at_s + late_s, "lateness_s": late_s}
    return line("event_applied", value | {"phase": phase, "by": "worker-0"}, 10 + at_s, "worker-0")


@pytest.mark.parametrize(
    ("late_s", "dilation", "level"), [(0.04, 1.0, VALID), (0.06, 1.0, INVALID), (0.04, 2.0, INVALID)]
)
def test_event_lateness_is_measured_by_the_clock_of_the_host(
    make_trial: MakeTrial, line: Line, late_s: float, dilation: float, level: VerdictLevel
) -> None:
    logs = {
        "coordinator": [line("run_start", time_s=10), line("run_stop", time_s=20)],
        "worker-0": [applied_event(line, "begin", 1.0, late_s), applied_event(line, "end", 1.5, 0.0)],
    }
    event = {"number": 0, "time_s": 1.0, "step": None, "change": PAUSE}

    assert check_planned_event_lateness(make_trial(logs, events=[event], dilation=dilation)).level == level


@pytest.mark.parametrize(
    ("phases", "seconds", "level"),
    [
        (("begin", "end"), 10, VALID),
        (("begin",), 10, INVALID),
        ((), 10, INVALID),
        ((), 0.9, VALID),  # over before the event's time
        (("begin",), 1.4, VALID),  # over before the event's end
    ],
)
def test_an_event_that_was_due_must_have_been_applied(
    make_trial: MakeTrial, line: Line, phases: tuple[str, ...], seconds: float, level: VerdictLevel
) -> None:
    when = {"begin": 1.0, "end": 1.5}
    logs = {
        "coordinator": [line("run_start", time_s=10), line("run_stop", time_s=10 + seconds)],
        "worker-0": [applied_event(line, phase, when[phase], 0.0) for phase in phases],
    }
    event = {"number": 0, "time_s": 1.0, "step": None, "change": PAUSE}

    assert check_planned_event_lateness(make_trial(logs, events=[event])).level == level


@pytest.mark.parametrize(
    ("steps", "kind", "level"),
    [
        ((5, 20), "pause", VALID),  # a slow worker, or one that only serves by then
        ((20, 20), "pause", INVALID),
        ((5, 20), "link", INVALID),  # the first worker at the step begins it for all
        ((5, 5), "link", VALID),
    ],
)
def test_an_event_at_a_step_is_due_when_the_nodes_that_begin_it_reach_the_step(
    make_trial: MakeTrial, steps_line: Line, steps: tuple[int, int], kind: str, level: VerdictLevel
) -> None:
    """Asynchronous workers do as many steps as they can: an event at a step never reached is not missing."""
    slower = {"kind": "link", "of": ["worker-0"], "uplink": "1mbit"}
    change = {"pause": PAUSE, "link": slower}[kind] | {"at": {"step": 10}}
    event = {"number": 0, "time_s": None, "step": 10, "change": change}
    logs = {f"worker-{rank}": [steps_line([{}] * done, f"worker-{rank}")] for rank, done in enumerate(steps)}

    verdict = check_planned_event_lateness(make_trial(logs, events=[event], nodes=NODES))

    assert verdict.level == level
    assert verdict.level == INVALID or "its workers did not reach its step" in verdict.reason


LINK_OF_WORKER = {"kind": "link", "at": {"time": "3s"}, "of": ["worker-0"], "uplink": "10mbit"}
LINK_OF_SERVER = LINK_OF_WORKER | {"of": ["server-0"]}
SLOWDOWN = {"kind": "slowdown", "at": {"time": "3s"}, "of": ["worker-0"], "factor": 2.0, "lasts": "1s"}


@pytest.mark.parametrize(
    ("change", "step_counts", "level"),
    [
        (SLOWDOWN, (2, 2), VALID),  # the trial waits for its last evaluation
        (SLOWDOWN, (2, 9), VALID),  # and for a slower worker
        (SLOWDOWN, (9, 2), INVALID),
        (LINK_OF_WORKER, (2, 9), VALID),
        (LINK_OF_WORKER, (9, 2), INVALID),
        (LINK_OF_SERVER, (2, 2), VALID),
        (LINK_OF_SERVER, (2, 9), INVALID),  # the server serves the slower worker
    ],
)
def test_an_event_after_its_nodes_finished_training_is_not_missing(
    make_trial: MakeTrial,
    line: Line,
    steps_line: StepsLine,
    change: dict[str, Any],
    step_counts: tuple[int, int],
    level: VerdictLevel,
) -> None:
    """A node that has left the run applies no events, while the trial goes on for other nodes or an evaluation."""
    logs = {"coordinator": [line("run_start", time_s=10), line("run_stop", time_s=20)]} | {
        f"worker-{rank}": [steps_line([{"start_s": 10.0 + step} for step in range(count)], f"worker-{rank}")]
        for rank, count in enumerate(step_counts)
    }
    event = {"number": 0, "time_s": 3.0, "step": None, "change": change}
    nodes = [*NODES, {"name": "server-0", "role": "server", "rank": 0}]

    verdict = check_planned_event_lateness(make_trial(logs, events=[event], nodes=nodes))

    assert verdict.level == level
    assert verdict.level == INVALID or "training ended before" in verdict.reason


def test_the_verdict_names_events_that_came_after_training_beside_applied_events(
    make_trial: MakeTrial, line: Line, steps_line: StepsLine
) -> None:
    """A reader of the verdict should not look for a fault."""
    applied = [applied_event(line, phase, at_s, 0.0) for phase, at_s in (("begin", 1.0), ("end", 1.5))]
    logs = {
        "coordinator": [line("run_start", time_s=10), line("run_stop", time_s=20)],
        "worker-0": [*applied, steps_line([{"start_s": 10.0 + step} for step in range(2)], "worker-0")],
    }
    events = [
        {"number": number, "time_s": time_s, "step": None, "change": change}
        for number, time_s, change in ((0, 1.0, PAUSE), (1, 3.0, SLOWDOWN))
    ]

    verdict = check_planned_event_lateness(make_trial(logs, events=events, nodes=NODES))

    assert verdict.level == VALID
    assert verdict.reason.endswith("training ended before slowdown 1")


def test_an_event_that_could_not_be_applied_is_invalid(make_trial: MakeTrial, line: Line) -> None:
    """The node that applies events logs a failure without a lateness."""
    value = {"number": 0, "kind": "pause", "planned_s": 1.0, "applied_s": 1.0, "lateness_s": None, "phase": "begin"}
    logs = {"worker-0": [line("event_applied", value | {"by": "worker-0"}, 11.0, "worker-0")]}
    event = {"number": 0, "time_s": 1.0, "step": None, "change": PAUSE}

    assert check_planned_event_lateness(make_trial(logs, events=[event])).level == INVALID


@pytest.mark.parametrize(("ratio", "level"), [(0.46, VALID), (0.44, INVALID), (None, DEGRADED)])
def test_a_device_with_a_cpu_quota_must_compute_at_its_share_of_a_core(
    make_trial: MakeTrial, line: Line, stop_line: Line, ratio: float | None, level: VerdictLevel
) -> None:
    slow = [{"name": "worker-0", "role": "worker", "rank": 0, "cpus": 0.5}]
    facts = {} if ratio is None else {"speed_ratio": ratio}
    logs = {"worker-0": [line("node_start", facts, node="worker-0"), stop_line("worker-0")]}

    assert check_worker_speed_fits_quota(make_trial(logs, status={"engine": "docker"}, nodes=slow)).level == level


@pytest.mark.parametrize(("dilation", "level"), [(25.0, VALID), (25.0 - 1e-12, VALID), (10.0, INVALID)])
def test_a_dilation_below_the_demand_of_the_trial_is_invalid(
    make_trial: MakeTrial, tmp_path: Path, dilation: float, level: VerdictLevel
) -> None:
    """The manifest records the demands that were measured before the run."""
    demand = {"trial": "000-t", "needs": {"rates of links": 25.0, "compute_speed": 3.0}}
    (tmp_path / "manifest.json").write_text(json.dumps({"admission": {"demands": [demand]}}))

    assert check_time_dilation(make_trial({}, dilation=dilation)).level == level


@pytest.mark.parametrize(
    "check",
    [
        check_cpu_throttling,
        check_shaping_enforced,
        check_measured_link_rates,
        check_round_trips,
        check_queue_drops,
        check_planned_event_lateness,
        check_worker_speed_fits_quota,
    ],
)
def test_checks_pass_for_a_trial_that_declares_nothing(make_trial: MakeTrial, check: Check) -> None:
    assert check(make_trial({}, status={"engine": "simulated"})).level == VALID


ASP = {"strategy": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}}
VARIED = [node | {"variation": {"kind": "normal"}} for node in NODES]


@pytest.mark.parametrize(
    ("step_s", "planned", "level"),
    [
        (1.09, {}, VALID),
        (0.5, {}, VALID),  # an upper bound
        (1.11, {}, DEGRADED),
        (1.11, {"fidelity": {"host_share": 0.2}}, VALID),
        (2.0, {"status": {"engine": "simulated"}}, VALID),
        (2.0, ASP, VALID),
        (2.0, {"events": [{"number": 0, "time_s": 1.0, "step": None, "change": PAUSE}]}, VALID),
        (2.0, {"network": LOSSY}, VALID),
        (2.0, {"nodes": VARIED}, VALID),
        (2.0, {"nodes": [{"name": "worker-0", "role": "worker", "rank": 0}]}, VALID),
    ],
)
def test_steps_much_longer_than_predicted_are_degraded_as_host_overhead(
    make_trial: MakeTrial, steps_line: StepsLine, step_s: float, planned: dict[str, Any], level: VerdictLevel
) -> None:
    """Applies where a closed form predicts the step; on a ring of 32 with short messages the host added a half."""
    logs = {f"worker-{rank}": [steps_line([{"step_s": step_s}] * 10, f"worker-{rank}")] for rank in range(2)}
    predicted = {"predicted": {"compute_s": 0.6, "exchange_s": 0.4, "formula": "a + b"}, "nodes": NODES, "workers": 2}

    assert check_host_added_time(make_trial(logs, **(predicted | planned))).level == level


@pytest.mark.parametrize(
    ("horizon_s", "seconds", "level"), [(None, 90.0, VALID), (10.0, 9.0, VALID), (10.0, 11.0, DEGRADED)]
)
def test_a_trial_longer_than_its_random_events_is_degraded(
    make_trial: MakeTrial, horizon_s: float | None, seconds: float, level: VerdictLevel
) -> None:
    """After the last random event the cluster would look calm."""
    trial = make_trial({})

    verdict = check_events_cover_trial(
        replace(trial, plan=trial.plan.model_copy(update={"horizon_s": horizon_s}), seconds=seconds)
    )

    assert verdict.level is level


def test_properties_enforced_by_our_own_code_hold_by_construction(make_trial: MakeTrial) -> None:
    """Shared links and paths, like ports: the words "not at all" beside a valid verdict would be misleading."""
    ends = {"source": "worker-0", "target": "worker-1"}
    path = ends | {"delay_s": 0.01, "losses": [{"kind": "independent", "share": 0.02}]}
    pipe = {"name": "between", "rate_bps": 1e8, "sources": ["worker-0"], "targets": ["worker-1"]}
    fluid = {"rung": "fluid", "rungs": dict.fromkeys(("pipes", "delay", "loss"), "fluid")}

    trial = make_trial({}, {"shaping": {"worker-1": fluid}}, network={"paths": [path], "shared_links": [pipe]})
    rows = [(row.what, row.declared, row.achieved, row.how) for row in list_achieved_properties(trial)]

    assert rows == [
        (kind, pytest.approx(declared), pytest.approx(declared), "by construction")
        for kind, declared in (("shared link", 1e8), ("delay", 0.01), ("loss", 0.02))
    ]
