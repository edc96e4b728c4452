"""How often is something measured until it is known? Once where that is good, else until most tries agree."""

import time
from collections.abc import Callable, Sequence
from statistics import median

MOST_TRIES = 7  # a host that was busy for a moment is not a wrong link; one that is wrong most of the time is
REST_S = 1.0  # per try so far, before the next two: a moment may last some seconds

Good = Callable[[float], bool]


def settled(tries: Sequence[float], good: Good) -> bool:
    """Whether more tries would not change what is found: the median, so of one try that try."""
    bad = sum(not good(each) for each in tries)
    return good(median(tries)) or bad > MOST_TRIES // 2 or len(tries) >= MOST_TRIES


def rest(tries: int) -> None:
    """After so many tries that settled nothing, before two more."""
    time.sleep(REST_S * tries)


def tried(first: float, again: Callable[[], float], good: Good) -> tuple[float, ...]:
    """All tries of something that was measured once: an odd number, so that their median is one of them."""
    tries = [first]
    while not settled(tries, good):
        rest(len(tries))
        tries += (again(), again())
    return tuple(tries)
