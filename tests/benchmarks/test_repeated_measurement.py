"""Repeated measurements: they must not turn a wrong link into a good one."""

from collections.abc import Callable, Iterator
from statistics import median

import pytest

from compose.engines.containers.repeated_measurement import REST_PER_TRY_S, repeat_until_conclusive


def is_near_one(value: float) -> bool:
    return abs(value - 1) <= 0.05


def values_in_order(values: list[float]) -> Callable[[], float]:
    remaining_values: Iterator[float] = iter(values)
    return lambda: next(remaining_values)


@pytest.mark.parametrize(
    ("measurements", "used_count", "is_good"),
    [
        ([1.0], 1, True),
        ([0.5, 1.0, 1.0], 3, True),
        ([0.5, 1.0, 0.5, 1.0, 1.0], 5, True),
        ([0.5, 1.0, 0.5, 0.5, 0.5], 5, False),  # four of seven can't be good any more
        ([0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 1.0], 7, True),
        ([0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0], 7, False),
    ],
)
def test_one_good_measurement_of_many_is_not_enough(
    measurements: list[float], used_count: int, is_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that is right once in five times is wrong; a host that is busy for some seconds must not fail it."""
    pauses_s: list[float] = []
    monkeypatch.setattr("compose.engines.containers.repeated_measurement.time.sleep", pauses_s.append)
    first, *later = measurements

    used_measurements = repeat_until_conclusive(first, values_in_order(later), is_near_one)

    assert pauses_s == pytest.approx([REST_PER_TRY_S * done_count for done_count in range(1, used_count, 2)])
    assert list(used_measurements) == measurements[:used_count]
    assert is_near_one(median(used_measurements)) == is_good
