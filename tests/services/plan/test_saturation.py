"""Asynchronous workers share links: a saturated link is always busy, and no worker is faster than alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.strategies.cost_model import LinkId as Port
from services.strategies.server_based.saturation import contended_step_s, seconds_to_serve_workers

seconds = st.floats(1e-3, 10)
loads = st.lists(st.tuples(seconds, st.floats(0, 1)), min_size=1, max_size=12)  # own step time, share of it on the link
UP: Port = ("up", "server-0")
DOWN: Port = ("down", "server-0")
BETWEEN_REGIONS: Port = ("pipe", 0)


@given(loads=loads)
def test_a_saturated_link_is_never_idle_and_never_carries_more_than_its_rate(loads: list[tuple[float, float]]) -> None:
    """Σ busy/max(own, T) is the link's load: 1 where T is above some worker's own step time, at most 1 otherwise."""
    own, busy = [own_s for own_s, _ in loads], [own_s * share for own_s, share in loads]

    cycle_s = seconds_to_serve_workers(own, busy)

    load = sum(busy_s / max(own_s, cycle_s) for own_s, busy_s in zip(own, busy, strict=True))
    assert load == pytest.approx(1) if cycle_s > min(own) else load <= 1 + 1e-9


@given(own=seconds, busy=st.floats(1e-3, 1), workers=st.integers(1, 32))
def test_equal_workers_take_the_longer_of_their_own_step_and_the_link_time_of_all(
    own: float, busy: float, workers: int
) -> None:
    """The usual formula of textbooks: max(t_c + …, n·S·β)."""
    step_s = contended_step_s([own] * workers, [{UP: busy, DOWN: busy / 2}] * workers)

    assert step_s == pytest.approx((max(own, workers * busy),) * workers)


def test_a_worker_with_long_steps_leaves_the_rest_of_the_link_to_the_others() -> None:
    """One worker that uses the link for 1 s every 10 s leaves nine tenths to two that would use it every second."""
    assert contended_step_s([1.0, 1.0, 10.0], [{UP: 0.9}, {UP: 0.9}, {UP: 1.0}]) == pytest.approx((2.0, 2.0, 10.0))


def test_a_saturated_link_delays_no_worker_that_does_not_use_it() -> None:
    """Workers near a server do not wait for the link between regions."""
    near, far = {UP: 0.1}, {UP: 0.1, BETWEEN_REGIONS: 2.0}

    assert contended_step_s([1.0, 1.0, 2.5, 2.5], [near, near, far, far]) == pytest.approx((1.0, 1.0, 4.0, 4.0))
