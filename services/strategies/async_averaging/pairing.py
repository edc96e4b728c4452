"""Pairs of an active and a passive worker that average their parameters, in AD-PSGD."""

import numpy as np


def list_active_ranks(worker_count: int) -> range:
    """Return the ranks of the active workers, which start averages: every second one, from rank 0 on."""
    return range(0, worker_count, 2)


def list_passive_ranks(worker_count: int) -> range:
    """Return the ranks of the passive workers, which only respond."""
    return range(1, worker_count, 2)


def choose_passive_rank(seed: int, active_rank: int, step: int, worker_count: int) -> int:
    """Return the passive worker with which an active worker averages its parameters in a step.

    The choice is random and uniform. It depends only on the arguments, so that the bytes of each worker follow from the
    numbers of steps.
    """
    passive_ranks = list_passive_ranks(worker_count)
    return passive_ranks[int(np.random.default_rng([seed, active_rank, step]).integers(len(passive_ranks)))]
