"""Pairs of an active and a passive worker that average their parameters, in AD-PSGD."""

from services.strategies.random_partners import draw_partner


def list_active_ranks(worker_count: int) -> range:
    """Return the ranks of the active workers, which start averages: every second one, from rank 0 on."""
    return range(0, worker_count, 2)


def list_passive_ranks(worker_count: int) -> range:
    """Return the ranks of the passive workers, which only respond."""
    return range(1, worker_count, 2)


def choose_passive_rank(seed: int, active_rank: int, step: int, worker_count: int) -> int:
    """Return the passive worker with which an active worker averages its parameters in a step.

    It is chosen at random. The bytes of each worker follow from the seed and the numbers of steps.
    """
    return draw_partner(seed, active_rank, step, list_passive_ranks(worker_count))
