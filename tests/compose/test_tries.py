"""What is measured again must not become what one would like to see."""

from collections.abc import Callable, Iterator
from statistics import median

import pytest

from compose.engines.containers.repeated_measurement import REST_PER_TRY_S, measure_until_conclusive


def near_one(found: float) -> bool:
    return abs(found - 1) <= 0.05


def following(values: list[float]) -> Callable[[], float]:
    rest: Iterator[float] = iter(values)
    return lambda: next(rest)


@pytest.mark.parametrize(
    ("measured", "tries", "is_good"),
    [
        ([1.0], 1, True),
        ([0.5, 1.0, 1.0], 3, True),
        ([0.5, 1.0, 0.5, 1.0, 1.0], 5, True),
        ([0.5, 1.0, 0.5, 0.5, 0.5], 5, False),  # four of seven can't be good any more
        ([0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 1.0], 7, True),
        ([0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0], 7, False),
    ],
)
def test_one_good_try_of_many_is_not_enough(
    measured: list[float], tries: int, is_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that is right once in five times is wrong; a host that is busy for a moment, or for seconds, is not."""
    rests: list[float] = []
    monkeypatch.setattr("compose.engines.containers.repeated_measurement.time.sleep", rests.append)
    first, *rest = measured

    found = measure_until_conclusive(first, following(rest), near_one)

    assert rests == pytest.approx([REST_PER_TRY_S * made for made in range(1, tries, 2)])
    assert list(found) == measured[:tries]
    assert near_one(median(found)) == is_good
