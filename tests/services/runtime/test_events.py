"""The plan of events follows from the scenario and the seed alone, before the trial begins."""

from itertools import pairwise
from math import gamma
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_trial import make_document

from services.cluster.addresses import DummyAddresses
from services.cluster.declared_event import EventTrigger
from services.cluster.events import (
    LinkChange,
    NetworkPartition,
    WorkerPause,
    WorkerSlowdown,
    event_conflicts,
    find_too_frequent_events,
    plan_event_occurrences,
    restrict_events_to_nodes,
)
from services.cluster.node_faults import NodeKill
from services.plan import make_plan
from services.scenario.scenario import Scenario
from services.schema.units import Duration, Rate
from services.strategies import AllReduce

NODES = ("worker-0", "worker-1", "server-0")


def worker_pause(**at: object) -> WorkerPause:
    return WorkerPause(at=EventTrigger.model_validate(at), of=("worker-0",), lasts=Duration("100ms"))


def test_a_share_of_the_budget_becomes_a_step() -> None:
    """Workers count steps; half of 301 steps are done when step 150 begins."""
    (event,) = plan_event_occurrences([worker_pause(share=0.5)], step_count=301, random_events_end_s=10, seed=1)

    assert (event.step, event.time_s) == (150, None)


def test_events_are_ordered_by_time_and_then_by_step() -> None:
    """Logs identify an event by its number."""
    declared_events = [
        worker_pause(step=7),
        worker_pause(time=Duration("3s")),
        worker_pause(step=2),
        worker_pause(time=Duration("1s")),
    ]

    events = plan_event_occurrences(declared_events, step_count=10, random_events_end_s=10, seed=1)

    assert [(event.number, event.time_s, event.step) for event in events] == [
        (0, 1.0, None),
        (1, 3.0, None),
        (2, None, 2),
        (3, None, 7),
    ]


@given(seed=st.integers(0, 99), mean_s=st.floats(0.5, 5))
def test_random_events_follow_from_the_seed_and_never_overlap(seed: int, mean_s: float) -> None:
    """A trial that is repeated with its seed has the same events."""
    declared_event = worker_pause(random=Duration(mean_s))

    first, second, other = (
        plan_event_occurrences([declared_event], 10, 300.0, event_seed) for event_seed in (seed, seed, seed + 1)
    )

    times = [event.time_s or 0.0 for event in first]
    assert first == second != other
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(times))
    assert not times or times[-1] < 300.0


def test_random_events_have_the_declared_mean_gap() -> None:
    """Exponential gaps of 2 s on average after events of 0.1 s: 10,000 s contain 4,762 ± 69 events."""
    events = plan_event_occurrences([worker_pause(random=Duration("2s"))], 10, 10_000.0, seed=3)

    assert len(events) == pytest.approx(10_000 / 2.1, abs=3 * 69)


def test_a_smaller_trial_omits_events_of_nodes_that_it_lacks() -> None:
    """All trials of a sweep from 1 to 8 workers share one list of events."""
    at = EventTrigger(step=1)
    change = LinkChange(at=at, of=("worker-1", "worker-5"), uplink=Rate("1mbit"))
    partition = NetworkPartition(at=at, apart=("server-0", "server-3"), lasts=Duration("1s"))
    slowdown = WorkerSlowdown(at=at, of=("worker-5",), factor=2.0)

    restricted = restrict_events_to_nodes([change, partition, slowdown], NODES)

    assert restricted == (
        change.model_copy(update={"of": ("worker-1",)}),
        partition.model_copy(update={"apart": ("server-0",)}),
    )


def test_a_group_stands_for_all_nodes_of_its_role() -> None:
    """A sweep over the number of workers, or 1,000 of them, needs no list of names; nodes keep their order."""
    at = EventTrigger(time=Duration("1s"))
    kill = NodeKill(at=at, of=("workers", "worker-1"))
    partition = NetworkPartition(at=at, apart=("servers",), lasts=Duration("1s"))

    restricted = restrict_events_to_nodes([kill, partition], NODES)

    assert [event.node_names for event in restricted] == [("worker-0", "worker-1"), ("server-0",)]
    assert restrict_events_to_nodes([partition], NODES[:2]) == ()


@pytest.mark.parametrize(
    ("group", "conflict"),
    [("workers", "lists all nodes; at least one"), ("servers", "there is no node servers; allowed")],
)
def test_nodes_of_a_group_are_checked_like_named_ones(group: str, conflict: str) -> None:
    partition = NetworkPartition(at=EventTrigger(step=1), apart=(group,), lasts=Duration("1s"))

    assert [each.message for each in event_conflicts([partition], NODES[:2]) if conflict in each.message]


@pytest.mark.parametrize(
    ("random", "lasts", "refused"), [("1us", "100ms", False), ("1us", "1us", True), ("12ms", "1us", False)]
)
def test_a_random_event_that_is_too_frequent_is_refused_with_an_allowed_gap(
    random: str, lasts: str, *, refused: bool
) -> None:
    """A gap of a microsecond made planning and running hang in the past; a long event delays the next one."""
    declared_event = WorkerPause(at=EventTrigger(random=Duration(random)), of=("worker-0",), lasts=Duration(lasts))

    conflicts = list(find_too_frequent_events([declared_event], 100.0, NODES))

    assert bool(conflicts) == refused
    assert [path for path, _ in conflicts] == [(0, "at", "random")] * refused
    assert all(message.endswith("write 11ms or more") for _, message in conflicts)
    assert not list(find_too_frequent_events([declared_event], 100.0, ["worker-1"]))


def node_kill(*names: str, **at: object) -> NodeKill:
    return NodeKill(at=EventTrigger.model_validate(at), of=names)


def moments(event: NodeKill, seed: int = 3) -> list[tuple[float, tuple[str, ...]]]:
    """Return the times and nodes of all occurrences of an event in 10,000 s."""
    return [
        (planned.time_s or 0.0, planned.change.node_names) for planned in plan_event_occurrences([event], 10, 1e4, seed)
    ]


def test_exponential_law_for_the_whole_event_draws_the_same_times_as_random() -> None:
    """The documentation says how the two relate."""
    law = node_kill("worker-0", "worker-1", law={"kind": "exponential", "mean": "60s"}, per="event")

    assert moments(law) == moments(node_kill("worker-0", "worker-1", random="60s"))


def test_every_node_fails_by_a_series_of_its_own() -> None:
    """The failures of a node must not change when nodes are added: the trials of a sweep are then comparable."""
    law = {"kind": "exponential", "mean": "100s"}
    alone = moments(node_kill("worker-1", law=law))
    together = moments(node_kill("worker-0", "worker-1", law=law))

    assert alone == [(time_s, names) for time_s, names in together if names == ("worker-1",)]
    assert len(together) == pytest.approx(200, abs=3 * 200**0.5)
    assert together == sorted(together)


@pytest.mark.parametrize("shape", [0.7, 1.0, 3.0])
def test_weibull_gaps_have_the_declared_mean_and_shape(shape: float) -> None:
    """The coefficient of variation of Weibull numbers follows from the shape alone."""
    law = {"kind": "weibull", "mean": "2s", "shape": shape}
    times_s = [0.0, *(time_s for time_s, _ in moments(node_kill("worker-0", law=law)))]
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    variation = (gamma(1 + 2 / shape) / gamma(1 + 1 / shape) ** 2 - 1) ** 0.5

    assert fmean(gaps_s) == pytest.approx(2.0, rel=0.08)
    assert pstdev(gaps_s) / fmean(gaps_s) == pytest.approx(variation, rel=0.08)


def test_trace_gives_the_failures_of_the_nodes_and_the_kind_of_the_event() -> None:
    """A plan contains the failures as events, and not the trace once more in each of them."""
    recorded = [
        {"time_s": 8.0, "node": "worker-1", "kind": "kill"},
        {"time_s": 2.0, "node": "worker-0", "kind": ""},
        {"time_s": 3.0, "node": "worker-0", "kind": "stop"},
        {"time_s": 4.0, "node": "worker-7", "kind": "kill"},
    ]
    event = node_kill("worker-0", "worker-1", law={"kind": "trace", "file": "failures.csv", "recorded": recorded})

    planned = plan_event_occurrences([event], 10, 0.0, 1)

    assert [(occurrence.time_s, occurrence.change.node_names) for occurrence in planned] == [
        (2.0, ("worker-0",)),
        (8.0, ("worker-1",)),
    ]
    assert "recorded" not in planned[0].model_dump_json(exclude_defaults=True)


def test_failures_that_are_too_frequent_on_all_nodes_together_are_refused() -> None:
    """Each of two nodes has 6,000 failures, which is allowed; together they have too many."""
    events = [node_kill("worker-0", "worker-1", law={"kind": "exponential", "mean": "16ms"})]

    ((path, message),) = find_too_frequent_events(events, 100.0, (*NODES, "worker-1"))

    assert path == (0, "at", "law", "mean")
    assert message.endswith("write 22ms or more")
    assert not list(find_too_frequent_events(events, 100.0, ["worker-0"]))


def test_planned_events_know_their_position_in_the_scenario_file() -> None:
    """The reason of a failed trial names the event, also in trials that lack the nodes of earlier events."""
    document = make_document(AllReduce(), steps=10, workers=2, batch=4, workload={}) | {
        "strategies": {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}},
        "events": [{"kind": "kill", "of": [name], "at": {"step": 3}} for name in ("server-0", "worker-1")],
    }
    trials = {trial.label: trial for trial in Scenario.decode(document).trials()}

    positions = {
        label: [event.declared_index for event in make_plan(trial, "run", "simulated", DummyAddresses()).events]
        for label, trial in trials.items()
    }

    assert positions == {"ring": [1], "ps": [0, 1]}
    moved = trials["ps"].with_strategy(trials["ring"].strategy)
    assert moved.event_positions == (1,)
