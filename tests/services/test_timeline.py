"""What happens when: decided before the trial begins, by the scenario and the seed alone."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.events import (
    EventTrigger,
    LinkChange,
    NetworkPartition,
    WorkerPause,
    WorkerSlowdown,
    plan_events,
    restrict_events_to_nodes,
    too_frequent_event_conflicts,
)
from services.schema.units import Duration, Rate

NODES = ("worker-0", "worker-1", "server-0")


def pause(**at: object) -> WorkerPause:
    return WorkerPause(at=EventTrigger.model_validate(at), of=("worker-0",), lasts=Duration("100ms"))


def test_a_share_of_the_budget_is_a_step() -> None:
    """Steps are what workers count; half of 301 steps are done when the step 150 begins."""
    (event,) = plan_events([pause(share=0.5)], step_count=301, max_time_s=10, seed=1)

    assert (event.step, event.time_s) == (150, None)


def test_events_come_by_time_and_then_by_step() -> None:
    """Their numbers are how logs name them."""
    happenings = [pause(step=7), pause(time=Duration("3s")), pause(step=2), pause(time=Duration("1s"))]

    events = plan_events(happenings, step_count=10, max_time_s=10, seed=1)

    assert [(event.number, event.time_s, event.step) for event in events] == [
        (0, 1.0, None),
        (1, 3.0, None),
        (2, None, 2),
        (3, None, 7),
    ]


@given(seed=st.integers(0, 99), mean_s=st.floats(0.5, 5))
def test_random_events_follow_from_the_seed_and_never_overlap(seed: int, mean_s: float) -> None:
    """A trial that is repeated with its seed meets the same accidents."""
    happening = pause(random=Duration(mean_s))

    once, again, other = (plan_events([happening], 10, 300.0, each) for each in (seed, seed, seed + 1))

    times = [event.time_s or 0.0 for event in once]
    assert once == again != other
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(times))
    assert not times or times[-1] < 300.0


def test_random_events_have_gaps_of_the_mean_that_was_asked_for() -> None:
    """Exponential: 10,000 s with a gap of 2 s after every 0.1 s hold 4,762 events, give or take 69."""
    events = plan_events([pause(random=Duration("2s"))], 10, 10_000.0, seed=3)

    assert len(events) == pytest.approx(10_000 / 2.1, abs=3 * 69)


def test_a_smaller_trial_leaves_out_what_happens_to_nodes_that_it_lacks() -> None:
    """A sweep from 1 to 8 workers has one timeline."""
    at = EventTrigger(step=1)
    change = LinkChange(at=at, of=("worker-1", "worker-5"), uplink=Rate("1mbit"))
    split = NetworkPartition(at=at, apart=("server-0", "server-3"), lasts=Duration("1s"))
    gone = WorkerSlowdown(at=at, of=("worker-5",), factor=2.0)

    kept = restrict_events_to_nodes([change, split, gone], NODES)

    assert kept == (change.model_copy(update={"of": ("worker-1",)}), split.model_copy(update={"apart": ("server-0",)}))


@pytest.mark.parametrize(
    ("random", "lasts", "refused"), [("1us", "100ms", False), ("1us", "1us", True), ("12ms", "1us", False)]
)
def test_a_random_event_that_comes_too_often_is_refused_with_a_gap_that_would_do(
    random: str, lasts: str, *, refused: bool
) -> None:
    """A gap of a microsecond once hung plan and run for ever; what lasts keeps the next from coming."""
    happening = WorkerPause(at=EventTrigger(random=Duration(random)), of=("worker-0",), lasts=Duration(lasts))

    found = list(too_frequent_event_conflicts([happening], 100.0, NODES))

    assert bool(found) == refused
    assert [path for path, _ in found] == [(0, "at", "random")] * refused
    assert all(message.endswith("write 11ms or more") for _, message in found)
    assert not list(too_frequent_event_conflicts([happening], 100.0, ["worker-1"]))
