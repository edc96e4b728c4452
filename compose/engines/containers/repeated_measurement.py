"""Repetition of a measurement until its result is conclusive.

It is conclusive when the median of the tries is accepted, or when most of the allowed tries are rejected.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median

# A host that was busy for a moment must not fail a correct link, and a link that is wrong most of the time must fail.
MAX_TRIES = 7
REST_PER_TRY_S = 1.0  # pause before the next two tries, per try so far: the host may be busy for some seconds

AcceptsValue = Callable[[float], bool]


def is_conclusive(measured_values: Sequence[float], is_value_ok: AcceptsValue) -> bool:
    """Return whether enough values have been measured to stop measuring.

    Enough have been measured if their median is accepted, or if no further values can make the median acceptable.
    """
    rejected = sum(not is_value_ok(value) for value in measured_values)
    return is_value_ok(median(measured_values)) or rejected > MAX_TRIES // 2 or len(measured_values) >= MAX_TRIES


def sleep_between_tries(try_count: int) -> None:
    """Sleep between two tries of a measurement; the more tries were made, the longer."""
    time.sleep(REST_PER_TRY_S * try_count)


def repeat_until_conclusive(
    first_value: float, measure_again: Callable[[], float], is_value_ok: AcceptsValue
) -> tuple[float, ...]:
    """Repeat a measurement until it is conclusive, and return all measured values.

    The number of values is odd.
    """
    tries = [first_value]
    while not is_conclusive(tries, is_value_ok):
        sleep_between_tries(len(tries))
        tries += (measure_again(), measure_again())
    return tuple(tries)
