"""How long does a step take each worker, when workers that do not wait for each other share links?

A closed network with one customer per worker: whoever has been served computes and comes back. While links have time
left, everybody goes at their own pace; a full link serves in turns, so that no two of those who wait for it differ.
"""

from collections.abc import Mapping, Sequence

from services.strategies.cost_model import LinkId


def steps_s(own_s: Sequence[float], busy_s: Sequence[Mapping[LinkId, float]]) -> tuple[float, ...]:
    """Seconds of a step by worker: its own pace, or that of the slowest of the full links that it uses.

    It is exact where one link is full of equal workers, too short by up to a fifth where their speeds differ, and too
    long where a worker held up by one link frees another.

    Args:
        own_s: seconds of a step by worker if it had all links to itself.
        busy_s: by worker, for how long its step keeps each link busy.
    """
    links = {link for taken in busy_s for link in taken}
    turns_s = {link: turn_s(own_s, [taken.get(link, 0.0) for taken in busy_s]) for link in links}
    pairs = zip(own_s, busy_s, strict=True)
    return tuple(max([own, *(turns_s[link] for link, seconds in taken.items() if seconds)]) for own, taken in pairs)


def turn_s(own_s: Sequence[float], busy_s: Sequence[float]) -> float:
    """The least T with Σ busy/max(own, T) <= 1: seconds from turn to turn at a link; 0 where nobody waits for it.

    Those who take longer than T anyway come seldom; the slowest are set aside one after another until the rest waits.
    """
    left_s, share = sum(busy_s), 1.0  # what one turn of the rest takes, of the time that the others leave
    for own, busy in sorted(zip(own_s, busy_s, strict=True), reverse=True):
        if own * share <= left_s:
            return left_s / share
        left_s -= busy
        share -= busy / own
    return 0.0
