"""Step time of asynchronous workers that share links.

The workers form a closed queueing network with one customer per worker: a worker uses the links, computes, and comes
back. While every link has idle time, each worker runs at its own pace. A saturated link serves its workers in turn, so
all workers that wait for it have the same step time.
"""

from collections.abc import Mapping, Sequence

from services.strategies.cost_model import LinkId


def contended_step_s(solo_step_s: Sequence[float], link_busy_s: Sequence[Mapping[LinkId, float]]) -> tuple[float, ...]:
    """Return the step time of each worker when several workers share links.

    It is the worker's step time alone or, if longer, the time in which its slowest link serves all workers once. The
    result is exact if equal workers saturate one link. It is too short by up to a fifth if their speeds differ, and
    too long if a worker that waits for one link leaves time on another.

    Args:
        solo_step_s: step time of each worker in seconds if it had all links to itself.
        link_busy_s: by worker, the seconds for which one step occupies each link.
    """
    links = {link for busy_s in link_busy_s for link in busy_s}
    cycles_s = {
        link: seconds_to_serve_workers(solo_step_s, [busy_s.get(link, 0.0) for busy_s in link_busy_s]) for link in links
    }
    return tuple(
        max([own_s, *(cycles_s[link] for link, seconds in busy_s.items() if seconds)])
        for own_s, busy_s in zip(solo_step_s, link_busy_s, strict=True)
    )


def seconds_to_serve_workers(solo_step_s: Sequence[float], step_busy_s: Sequence[float]) -> float:
    """Return the seconds in which a saturated link serves each waiting worker once.

    Return 0 if no worker waits. The cycle time is the least T with Σ busy/max(own, T) <= 1. Workers whose own step
    takes longer than T do not wait for the link. They are set aside one after another, slowest first, until all
    remaining workers wait.

    Args:
        solo_step_s: step time of each worker in seconds if it had the link to itself.
        step_busy_s: seconds for which one step of each worker occupies the link.
    """
    remaining_busy_s = sum(step_busy_s)  # for one step of each worker that is not set aside
    free_share = 1.0  # part of the link's time that the workers set aside leave free
    for own_s, own_busy_s in sorted(zip(solo_step_s, step_busy_s, strict=True), reverse=True):
        if own_s * free_share <= remaining_busy_s:
            return remaining_busy_s / free_share
        remaining_busy_s -= own_busy_s
        free_share -= own_busy_s / own_s
    return 0.0
