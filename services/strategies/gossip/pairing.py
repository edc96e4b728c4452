"""Pairs of workers that exchange vectors, drawn at random from the seed of the trial."""

import numpy as np

PAIRING_STREAM = 0x9A125  # separates these random numbers from others with the same seed


def draw_partners(seed: int, exchange_number: int, worker_count: int) -> tuple[int, ...]:
    """Return the partner of each rank in one exchange: uniformly random pairs, the same for the same arguments.

    The number of workers is even, or 1; a single worker is its own partner.
    """
    order = np.random.default_rng((PAIRING_STREAM, seed, exchange_number)).permutation(worker_count).tolist()
    partners = list(range(worker_count))
    for first, second in zip(order[::2], order[1::2], strict=False):
        partners[first], partners[second] = second, first
    return tuple(partners)
