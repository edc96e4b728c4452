"""Repetition of a measurement until the result is conclusive: one accepted try, else a majority of tries."""

import time
from collections.abc import Callable, Sequence
from statistics import median

# A host that was busy for a moment must not fail a correct link, and a link that is wrong most of the time must fail.
MAX_TRIES = 7
REST_PER_TRY_S = 1.0  # pause before the next two tries, per try so far: the host may be busy for some seconds

AcceptsValue = Callable[[float], bool]


def is_conclusive(tries: Sequence[float], is_accepted: AcceptsValue) -> bool:
    """Return whether to stop measuring: the median is accepted, most of `MAX_TRIES` are rejected, or all are made."""
    rejected = sum(not is_accepted(value) for value in tries)
    return is_accepted(median(tries)) or rejected > MAX_TRIES // 2 or len(tries) >= MAX_TRIES


def rest_between_tries(try_count: int) -> None:
    """Sleep before the next two tries, longer the more tries were made so far."""
    time.sleep(REST_PER_TRY_S * try_count)


def measure_until_conclusive(
    first_value: float, measure_again: Callable[[], float], is_accepted: AcceptsValue
) -> tuple[float, ...]:
    """Return all measured values, the first one included; an odd number, so that the median is one of them."""
    tries = [first_value]
    while not is_conclusive(tries, is_accepted):
        rest_between_tries(len(tries))
        tries += (measure_again(), measure_again())
    return tuple(tries)
