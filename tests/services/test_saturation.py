"""Workers that share links and do not wait for each other: a full link is full, and nobody is faster than alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.strategies.cost_model import LinkId as Port
from services.strategies.saturation import contended_step_s, link_cycle_s

seconds = st.floats(1e-3, 10)
loads = st.lists(st.tuples(seconds, st.floats(0, 1)), min_size=1, max_size=12)  # own pace, share of it at the link
UP: Port = ("up", "server-0")
DOWN: Port = ("down", "server-0")
ABROAD: Port = ("pipe", 0)


@given(loads=loads)
def test_a_link_that_is_waited_for_is_never_idle_and_never_more_than_full(loads: list[tuple[float, float]]) -> None:
    """Σ busy/max(own, T) is what it carries: 1 where T is above somebody's own pace, at most 1 where nobody waits."""
    own, busy = [pace for pace, _ in loads], [pace * share for pace, share in loads]

    turn = link_cycle_s(own, busy)

    carried = sum(taken / max(pace, turn) for pace, taken in zip(own, busy, strict=True))
    assert carried == pytest.approx(1) if turn > min(own) else carried <= 1 + 1e-9


@given(own=seconds, busy=st.floats(1e-3, 1), workers=st.integers(1, 32))
def test_equal_workers_take_the_longer_of_their_own_pace_and_what_the_link_takes_for_all(
    own: float, busy: float, workers: int
) -> None:
    """The textbook's max(t_c + …, n·S·β)."""
    found = contended_step_s([own] * workers, [{UP: busy, DOWN: busy / 2}] * workers)

    assert found == pytest.approx((max(own, workers * busy),) * workers)


def test_who_takes_longer_than_a_turn_leaves_the_rest_of_the_link_to_the_others() -> None:
    """One worker that comes every 10 s for 1 s leaves nine tenths to two that would come every second."""
    assert contended_step_s([1.0, 1.0, 10.0], [{UP: 0.9}, {UP: 0.9}, {UP: 1.0}]) == pytest.approx((2.0, 2.0, 10.0))


def test_a_full_link_holds_up_nobody_who_does_not_use_it() -> None:
    """Workers near a server do not wait for the way between regions."""
    near, far = {UP: 0.1}, {UP: 0.1, ABROAD: 2.0}

    assert contended_step_s([1.0, 1.0, 2.5, 2.5], [near, near, far, far]) == pytest.approx((1.0, 1.0, 4.0, 4.0))
