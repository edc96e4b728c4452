"""How long a round takes whose last workers nobody waits for."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cluster.device_profiles import FactorArray, LognormalVariation
from services.parameter_server.order_statistics import expected_kth_finish_s, expected_round_s


def lognormal(mean_s: float, sigma: float) -> Callable[[FactorArray], FactorArray]:
    law = LognormalVariation(sigma=sigma)
    return lambda x: law.duration_factor_cdf(x / mean_s)


@settings(max_examples=25)  # each carries 24,000 rounds
@given(workers=st.integers(2, 12), late=st.integers(1, 3), sigma=st.floats(0.05, 0.5), pause=st.floats(0, 0.5))
def test_who_begins_late_makes_a_round_longer_and_never_as_long_as_one_that_waits_for_all(
    workers: int, late: int, sigma: float, pause: float
) -> None:
    """Between the order statistic of those who begin together and the slowest of all."""
    laws, kth = [lognormal(1.0, sigma)] * workers, max(1, workers - late)

    found = expected_round_s(laws, kth, 1.0, pause)

    assert expected_kth_finish_s(laws, kth, 1.0) * 0.995 <= found <= expected_kth_finish_s(laws, workers, 1.0) * 1.005


@given(workers=st.integers(1, 12), mean_s=st.floats(1e-3, 10), pause=st.floats(0, 1))
def test_a_round_that_waits_for_all_is_the_slowest_of_them(workers: int, mean_s: float, pause: float) -> None:
    """Nobody begins late."""
    laws = [lognormal(mean_s, 0.3)] * workers

    assert expected_round_s(laws, workers, mean_s, pause) == expected_kth_finish_s(laws, workers, mean_s)


def test_a_worker_that_is_always_late_leaves_the_others_to_themselves() -> None:
    """One that takes ten times as long is of no round; the others wait for each other."""
    quick, slow = lognormal(1.0, 0.1), lognormal(10.0, 0.1)

    found = expected_round_s([quick] * 4 + [slow], 4, 1.0, 0.0)

    assert found == pytest.approx(expected_kth_finish_s([quick] * 4, 4, 1.0), rel=0.05)
