"""Expected duration of a round that does not wait for its last workers."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cluster.device_profiles import FactorArray, LognormalVariation
from services.parameter_server.order_statistics import expected_kth_finish_s, simulate_mean_round_s


def lognormal_cdf(mean_s: float, sigma: float) -> Callable[[FactorArray], FactorArray]:
    law = LognormalVariation(sigma=sigma)
    return lambda x: law.duration_factor_cdf(x / mean_s)


@settings(max_examples=25)  # each example computes 24,000 rounds
@given(workers=st.integers(2, 12), late_workers=st.integers(1, 3), sigma=st.floats(0.05, 0.5), pause=st.floats(0, 0.5))
def test_late_starters_lengthen_a_round_but_less_than_waiting_for_all_workers(
    workers: int, late_workers: int, sigma: float, pause: float
) -> None:
    """The duration lies between the order statistic of workers that start together and the slowest of all workers."""
    laws, kth = [lognormal_cdf(1.0, sigma)] * workers, max(1, workers - late_workers)

    round_s = simulate_mean_round_s(laws, kth, 1.0, pause)

    assert expected_kth_finish_s(laws, kth, 1.0) * 0.995 <= round_s <= expected_kth_finish_s(laws, workers, 1.0) * 1.005


@given(workers=st.integers(1, 12), mean_s=st.floats(1e-3, 10), pause=st.floats(0, 1))
def test_a_round_that_waits_for_all_workers_ends_with_the_slowest(workers: int, mean_s: float, pause: float) -> None:
    """No worker starts late."""
    laws = [lognormal_cdf(mean_s, 0.3)] * workers

    assert simulate_mean_round_s(laws, workers, mean_s, pause) == expected_kth_finish_s(laws, workers, mean_s)


def test_a_worker_that_is_always_late_does_not_change_the_rounds_of_the_others() -> None:
    """A worker that takes ten times as long takes part in no round; the others wait for each other."""
    quick, slow = lognormal_cdf(1.0, 0.1), lognormal_cdf(10.0, 0.1)

    round_s = simulate_mean_round_s([quick] * 4 + [slow], 4, 1.0, 0.0)

    assert round_s == pytest.approx(expected_kth_finish_s([quick] * 4, 4, 1.0), rel=0.05)
