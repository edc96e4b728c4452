"""Declared events change the step times by the declared amount from the declared moment on, and are logged."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.events import PlannedEvent
from services.cluster.links.fluid_link import RateLimiter, to_goodput_bytes_per_s
from services.runtime.slowdowns import WorkerSlowdowns
from services.runtime.transport import Message, MessageKind, MessageTag
from services.transport.virtual import VirtualFabric

Simulate = Callable[..., Any]

RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}
FREE = {"worker": {"throughput": "60/s"}}  # 6 samples of each of two workers: 0.1 s, and no time for messages


def step_times(trial: Any, rank: int) -> list[float]:
    """Return the seconds of each step of a worker."""
    return [row["step_s"] for row in trial.steps(rank)]


def applied_events(trial: Any, node: str) -> list[dict[str, Any]]:
    """Return the records of applied events that a node has logged."""
    return [event["value"] for event in trial.events(node, "event_applied")]


def test_slowdown_stretches_compute_from_its_moment_on(simulate: Simulate) -> None:
    """The slowdown begins in the middle of the third step and ends within another: it applies by time, not by step."""
    slowdown = {"kind": "slowdown", "of": ["worker-1"], "factor": 3, "at": {"time": "250ms"}, "lasts": "450ms"}

    trial = simulate(RING, 2, cluster=FREE, events=[slowdown])

    assert step_times(trial, 1)[:5] == pytest.approx([0.1, 0.1, 0.05 + 3 * 0.05, 0.3, 0.1], abs=1e-6)
    assert step_times(trial, 0)[:5] == pytest.approx(step_times(trial, 1)[:5]), "the other waits for it"
    compute_times = [row["compute_s"] for row in trial.steps(0)]
    assert compute_times[:5] == pytest.approx([0.1] * 5), "and is not slower itself"
    assert trial.value("worker-1", "node_stop")["missed_deadlines"] == 0
    assert applied_events(trial, "worker-0") == []
    assert applied_events(trial, "worker-1") == [
        {"number": 0, "kind": "slowdown", "phase": phase, "by": "worker"}
        | {"planned_s": at, "applied_s": at, "lateness_s": 0.0}
        for phase, at in (("begin", 0.25), ("end", 0.7))
    ]


@pytest.mark.parametrize("when", [{"step": 2}, {"share": 0.1}])
def test_event_at_a_step_begins_with_that_step(simulate: Simulate, when: dict[str, Any]) -> None:
    """A worker applies its own event when it begins the step; a share of the budget is converted to a step."""
    slowdown = {"kind": "slowdown", "of": ["worker-0", "worker-1"], "factor": 2, "at": when}

    trial = simulate(RING, 2, cluster=FREE, events=[slowdown])

    assert trial.plan.steps == 21
    assert step_times(trial, 0)[:4] == pytest.approx([0.1, 0.1, 0.2, 0.2], abs=1e-6)
    assert [value["planned_s"] for rank in (0, 1) for value in applied_events(trial, f"worker-{rank}")] == [0.2, 0.2]


def test_paused_worker_neither_computes_nor_sends_until_its_pause_ends(simulate: Simulate) -> None:
    """The other workers wait for the paused one, and the steps after the pause are as long as before."""
    pause = {"kind": "pause", "of": ["worker-1"], "at": {"time": "120ms"}, "lasts": "1s"}

    trial = simulate(RING, 2, cluster=FREE, events=[pause])

    assert step_times(trial, 0)[:3] == pytest.approx([0.1, 1.1, 0.1], abs=1e-6)
    assert step_times(trial, 1)[:3] == pytest.approx([0.1, 1.1, 0.1], abs=1e-6)


def test_worker_paused_between_two_messages_sends_the_second_after_the_pause(simulate: Simulate) -> None:
    """A pause, like the migration of a virtual machine, delays all messages, wherever in the step it begins."""
    slow = {"worker": {"throughput": "60/s", "uplink": "10kbit"}}  # 37 entries: a half takes some 60 ms
    pause = {"kind": "pause", "of": ["worker-1"], "at": {"time": "150ms"}, "lasts": "3s"}

    baseline, trial = (simulate(RING, 2, cluster=slow, events=events) for events in ([], [pause]))

    assert step_times(trial, 0)[0] == pytest.approx(3.15 + 18 * 4 / to_goodput_bytes_per_s(10e3), abs=1e-6)
    assert step_times(trial, 0)[2:5] == pytest.approx(step_times(baseline, 0)[2:5], abs=1e-6)


def test_link_event_changes_the_rate_and_restores_it(simulate: Simulate) -> None:
    """The server's downlink has half its rate: pushes take twice as long, from the next message on."""
    links = {"worker": {"throughput": "60/s"}, "server": {"uplink": "1mbit", "downlink": "1mbit"}}
    slower = {"kind": "link", "of": ["server-0"], "downlink": "500kbit", "at": {"step": 2}, "lasts": "150ms"}

    baseline, trial = (simulate(SERVER, 2, cluster=links, events=events) for events in ([], [slower]))

    push_s = 2 * trial.plan.vector_bytes / to_goodput_bytes_per_s(1e6)
    assert step_times(trial, 0)[2] == pytest.approx(step_times(baseline, 0)[2] + push_s, abs=1e-6)
    assert step_times(trial, 0)[3:6] == pytest.approx(step_times(baseline, 0)[3:6], abs=1e-6)
    (due_event,) = trial.events("coordinator", "event_due")
    assert due_event["value"] == {"number": 0, "step": 2}
    assert [(value["by"], value["phase"], value["lateness_s"]) for value in applied_events(trial, "server-0")] == [
        ("transport", "begin", 0.0),
        ("transport", "end", 0.0),
    ]
    assert applied_events(trial, "worker-0") == []


def test_link_event_adds_the_delay_in_both_directions(simulate: Simulate) -> None:
    """A step includes one delay on the way to the server and one on the way back."""
    longer = {"kind": "link", "of": ["worker-1"], "delay": "40ms", "at": {"time": "0.1ms"}}

    trial = simulate(SERVER, 2, cluster=FREE, events=[longer])

    assert step_times(trial, 1)[1:6] == pytest.approx([0.1 + 2 * 0.04] * 5, abs=1e-6)


def test_messages_across_a_partition_arrive_after_it_ends(simulate: Simulate) -> None:
    """No node fails: messages wait, as TCP would send them again. The node that is cut off logs the event."""
    partition = {"kind": "partition", "apart": ["worker-2"], "at": {"time": "150ms"}, "lasts": "2s"}

    trial = simulate(RING, 3, cluster={"worker": {"throughput": "40/s"}}, events=[partition])

    assert step_times(trial, 0)[:3] == pytest.approx([0.1, 2.05, 0.1], abs=1e-6)
    assert [value["phase"] for value in applied_events(trial, "worker-2")] == ["begin", "end"]
    assert applied_events(trial, "worker-0") == []


@pytest.mark.parametrize(("direction", "delayed"), [("both", {0, 1}), ("from_apart", {0}), ("to_apart", {1})])
def test_one_way_partition_delays_the_messages_of_its_direction_only(
    in_virtual_time: Callable[..., Any], direction: str, delayed: set[int]
) -> None:
    """Worker 0 is apart. Its own message and that of worker 1 are sent in the middle of the partition."""
    partition = {"kind": "partition", "apart": ["worker-0"], "at": {"time": "1s"}, "lasts": "2s"}
    event = PlannedEvent.model_validate(
        {"number": 0, "time_s": 1.0, "step": None, "change": partition | {"direction": direction}}
    )

    async def send_both_ways() -> list[float]:
        links = {name: RateLimiter(inf) for name in ("worker-0", "worker-1")}
        fabric = VirtualFabric(links, links, timeout_s=10)
        transports = [fabric.make_transport(name) for name in links]
        for conditions in fabric.conditions.values():
            conditions.begin_event(event)
            asyncio.get_running_loop().call_at(2.0, conditions.end_event, event)

        async def exchange(sender: int) -> float:
            await transports[sender].send(f"worker-{1 - sender}", Message(MessageTag(0, MessageKind.TOKEN), b"1"))
            await transports[1 - sender].receive(f"worker-{sender}", MessageTag(0, MessageKind.TOKEN))
            return asyncio.get_running_loop().time()

        return await asyncio.gather(exchange(0), exchange(1))

    arrivals_s = in_virtual_time(send_both_ways())

    assert {sender for sender, arrival_s in enumerate(arrivals_s) if arrival_s == pytest.approx(2.0)} == delayed


def test_compute_variation_follows_the_seed_and_repeats(simulate: Simulate) -> None:
    """The compute time of each step is the one drawn from the seed, to the microsecond."""
    varying = {"worker": {"throughput": "60/s", "variation": {"kind": "lognormal", "sigma": 0.2}}}

    trial, repeated = (simulate(RING, 2, cluster=varying) for _ in range(2))

    variation = trial.plan.node_plans_of_role("worker")[1].variation
    expected = [0.1 * variation.duration_factor(trial.plan.seed, 1, step) for step in range(6)]
    assert [row["compute_s"] for row in trial.steps(1)[:6]] == pytest.approx(expected, abs=1e-6)
    assert step_times(trial, 0) == step_times(repeated, 0)


slowdown_spans = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0.01, 5), st.one_of(st.floats(0.2, 8), st.just(inf))), max_size=5
)


@given(spans=slowdown_spans, start=st.floats(0, 10), work_s=st.floats(0, 5), cut=st.floats(0, 1))
def test_end_of_slowed_work_does_not_depend_on_how_it_is_split(
    spans: list[tuple[float, float, float]], start: float, work_s: float, cut: float
) -> None:
    """Forward and backward in sequence end when both together do: deadlines don't depend on phases."""
    slowdowns = WorkerSlowdowns()
    for begin_s, duration_s, factor in spans:
        slowdowns.add_slowdown(begin_s, duration_s, factor)

    end_s = slowdowns.end_of_compute_s(start, work_s)
    first_end_s = slowdowns.end_of_compute_s(start, work_s * cut)

    assert slowdowns.end_of_compute_s(first_end_s, work_s * (1 - cut)) == pytest.approx(end_s, rel=1e-9, abs=1e-9)
    assert start <= first_end_s <= end_s * (1 + 1e-12)
