"""Random choice of the workers with which a worker exchanges vectors.

The choice depends only on the seed of the trial and on numbers that all workers know. So the plan knows the choice
before a run, and workers need no messages for it.
"""

from collections.abc import Sequence

import numpy as np

PAIRS_STREAM = 0x9A125  # separates these random numbers from others with the same seed


def draw_pairs(seed: int, exchange_number: int, worker_count: int) -> tuple[int, ...]:
    """Return the partner of each rank in one exchange: uniformly random pairs, the same for the same arguments.

    The number of workers is even, or 1; a single worker is its own partner.
    """
    order = np.random.default_rng((PAIRS_STREAM, seed, exchange_number)).permutation(worker_count).tolist()
    partners = list(range(worker_count))
    for first, second in zip(order[::2], order[1::2], strict=False):
        partners[first], partners[second] = second, first
    return tuple(partners)


def draw_partner(seed: int, rank: int, step: int, candidate_ranks: Sequence[int]) -> int:
    """Return the partner of one rank in one step: one of the candidates, each with the same probability."""
    return candidate_ranks[int(np.random.default_rng((seed, rank, step)).integers(len(candidate_ranks)))]
