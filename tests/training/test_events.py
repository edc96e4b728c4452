"""What happens while a trial runs changes its steps by what it says, from the moment that it says, and is logged."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.links.fluid_link import goodput_bytes_per_s
from services.runtime.slowdowns import WorkerSlowdowns

Rehearse = Callable[..., Any]

RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}
FREE = {"worker": {"throughput": "60/s"}}  # 6 samples of each of two workers: 0.1 s, and no time for messages


def steps(done: Any, rank: int) -> list[float]:
    """Seconds of each step."""
    return [row["step_s"] for row in done.steps(rank)]


def applied(done: Any, node: str) -> list[dict[str, Any]]:
    """What a node has logged of events."""
    return [event["value"] for event in done.events(node, "event_applied")]


def test_a_slowdown_stretches_the_mathematics_from_its_moment_on(rehearse: Rehearse) -> None:
    """It begins in the middle of the third step, and ends in the middle of another: to the moment, not to the step."""
    slowdown = {"kind": "slowdown", "of": ["worker-1"], "factor": 3, "at": {"time": "250ms"}, "lasts": "450ms"}

    done = rehearse(RING, 2, cluster=FREE, events=[slowdown])

    assert steps(done, 1)[:5] == pytest.approx([0.1, 0.1, 0.05 + 3 * 0.05, 0.3, 0.1], abs=1e-6)
    assert steps(done, 0)[:5] == pytest.approx(steps(done, 1)[:5]), "the other waits for it"
    own = [row["compute_s"] for row in done.steps(0)]
    assert own[:5] == pytest.approx([0.1] * 5), "and is not slower itself"
    assert done.value("worker-1", "node_stop")["missed_deadlines"] == 0
    assert applied(done, "worker-0") == []
    assert applied(done, "worker-1") == [
        {"number": 0, "kind": "slowdown", "phase": phase, "by": "worker"}
        | {"planned_s": at, "applied_s": at, "lateness_s": 0.0}
        for phase, at in (("begin", 0.25), ("end", 0.7))
    ]


@pytest.mark.parametrize("when", [{"step": 2}, {"share": 0.1}])
def test_an_event_may_wait_for_a_step(rehearse: Rehearse, when: dict[str, Any]) -> None:
    """A worker applies what is its own when it begins the step itself; a share of the budget is a step."""
    slowdown = {"kind": "slowdown", "of": ["worker-0", "worker-1"], "factor": 2, "at": when}

    done = rehearse(RING, 2, cluster=FREE, events=[slowdown])

    assert done.plan.steps == 21
    assert steps(done, 0)[:4] == pytest.approx([0.1, 0.1, 0.2, 0.2], abs=1e-6)
    assert [value["planned_s"] for rank in (0, 1) for value in applied(done, f"worker-{rank}")] == [0.2, 0.2]


def test_a_paused_worker_does_nothing_until_its_pause_is_over(rehearse: Rehearse) -> None:
    """Neither mathematics nor messages: the others wait, and then all goes on as before."""
    pause = {"kind": "pause", "of": ["worker-1"], "at": {"time": "120ms"}, "lasts": "1s"}

    done = rehearse(RING, 2, cluster=FREE, events=[pause])

    assert steps(done, 0)[:3] == pytest.approx([0.1, 1.1, 0.1], abs=1e-6)
    assert steps(done, 1)[:3] == pytest.approx([0.1, 1.1, 0.1], abs=1e-6)


def test_a_worker_paused_between_two_messages_sends_the_second_afterwards(rehearse: Rehearse) -> None:
    """A virtual machine that is moved answers nobody, wherever in the step that is."""
    slow = {"worker": {"throughput": "60/s", "uplink": "10kbit"}}  # 37 entries: a half takes some 60 ms
    pause = {"kind": "pause", "of": ["worker-1"], "at": {"time": "150ms"}, "lasts": "3s"}

    calm, done = (rehearse(RING, 2, cluster=slow, events=events) for events in ([], [pause]))

    assert steps(done, 0)[0] == pytest.approx(3.15 + 18 * 4 / goodput_bytes_per_s(10e3), abs=1e-6)
    assert steps(done, 0)[2:5] == pytest.approx(steps(calm, 0)[2:5], abs=1e-6)


def test_a_link_gets_another_rate_and_its_old_one_back(rehearse: Rehearse) -> None:
    """The server's downlink at half its rate: pushes take twice as long, from the next message on."""
    links = {"worker": {"throughput": "60/s"}, "server": {"uplink": "1mbit", "downlink": "1mbit"}}
    slower = {"kind": "link", "of": ["server-0"], "downlink": "500kbit", "at": {"step": 2}, "lasts": "150ms"}

    calm, done = (rehearse(SERVER, 2, cluster=links, events=events) for events in ([], [slower]))

    push_s = 2 * done.plan.vector_bytes / goodput_bytes_per_s(1e6)
    assert steps(done, 0)[2] == pytest.approx(steps(calm, 0)[2] + push_s, abs=1e-6)
    assert steps(done, 0)[3:6] == pytest.approx(steps(calm, 0)[3:6], abs=1e-6)
    (due,) = done.events("coordinator", "event_due")
    assert due["value"] == {"number": 0, "step": 2}
    assert [(value["by"], value["phase"], value["lateness_s"]) for value in applied(done, "server-0")] == [
        ("transport", "begin", 0.0),
        ("transport", "end", 0.0),
    ]
    assert applied(done, "worker-0") == []


def test_a_link_gets_a_longer_delay_in_both_directions(rehearse: Rehearse) -> None:
    """One way is to the server, the other is back."""
    longer = {"kind": "link", "of": ["worker-1"], "delay": "40ms", "at": {"time": "0.1ms"}}

    done = rehearse(SERVER, 2, cluster=FREE, events=[longer])

    assert steps(done, 1)[1:6] == pytest.approx([0.1 + 2 * 0.04] * 5, abs=1e-6)


def test_nothing_passes_a_partition_until_it_ends(rehearse: Rehearse) -> None:
    """Nobody fails: messages wait, as TCP would send them again. The side that is cut off logs it."""
    partition = {"kind": "partition", "apart": ["worker-2"], "at": {"time": "150ms"}, "lasts": "2s"}

    done = rehearse(RING, 3, cluster={"worker": {"throughput": "40/s"}}, events=[partition])

    assert steps(done, 0)[:3] == pytest.approx([0.1, 2.05, 0.1], abs=1e-6)
    assert [value["phase"] for value in applied(done, "worker-2")] == ["begin", "end"]
    assert applied(done, "worker-0") == []


def test_a_varying_device_takes_other_times_and_repeats_them(rehearse: Rehearse) -> None:
    """What the seed says of each step, to the microsecond."""
    varying = {"worker": {"throughput": "60/s", "variation": {"kind": "lognormal", "sigma": 0.2}}}

    done, again = (rehearse(RING, 2, cluster=varying) for _ in range(2))

    variation = done.plan.node_plans_of_role("worker")[1].variation
    expected = [0.1 * variation.duration_factor(done.plan.seed, 1, step) for step in range(6)]
    assert [row["compute_s"] for row in done.steps(1)[:6]] == pytest.approx(expected, abs=1e-6)
    assert steps(done, 0) == steps(again, 0)


spans = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0.01, 5), st.one_of(st.floats(0.2, 8), st.just(inf))), max_size=5
)


@given(spans=spans, start=st.floats(0, 10), work_s=st.floats(0, 5), cut=st.floats(0, 1))
def test_hindered_work_can_be_cut_anywhere(
    spans: list[tuple[float, float, float]], start: float, work_s: float, cut: float
) -> None:
    """Forward and backward one after the other end when both together do: deadlines don't depend on phases."""
    hindrances = WorkerSlowdowns()
    for begins, lasts, factor in spans:
        hindrances.add_slowdown(begins, lasts, factor)

    whole = hindrances.compute_end_s(start, work_s)
    first = hindrances.compute_end_s(start, work_s * cut)

    assert hindrances.compute_end_s(first, work_s * (1 - cut)) == pytest.approx(whole, rel=1e-9, abs=1e-9)
    assert start <= first <= whole * (1 + 1e-12)
