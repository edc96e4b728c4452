"""Pairs of workers that exchange vectors: pairs drawn at random, and a round robin in which every pair meets once."""

from collections.abc import Sequence

import numpy as np

PAIRING_STREAM = 0x9A125  # separates these random numbers from others with the same seed


def draw_partners(seed: int, exchange_number: int, worker_count: int) -> tuple[int, ...]:
    """Return the partner of each rank in one exchange: uniformly random pairs, the same for the same arguments.

    The number of workers is even, or 1; a single worker is its own partner.
    """
    order = np.random.default_rng((PAIRING_STREAM, seed, exchange_number)).permutation(worker_count).tolist()
    return _join_pairs(order)


def round_robin_partners(worker_count: int) -> tuple[tuple[int, ...], ...]:
    """Return the partner of each rank in n-1 rounds for n workers, in which every rank meets every other once.

    One rank stays in its place, and the others move on by one place per round (circle method). The number of workers
    is even, or 1.
    """
    if worker_count == 1:
        return ((0,),)
    others = list(range(1, worker_count))
    rounds = []
    for turn in range(worker_count - 1):
        circle = [0, *others[turn:], *others[:turn]]
        order = [rank for pair in zip(circle, reversed(circle), strict=True) for rank in pair]
        rounds.append(_join_pairs(order[:worker_count]))
    return tuple(rounds)


def _join_pairs(order: Sequence[int]) -> tuple[int, ...]:
    """Return the partner of each rank, if the first two ranks of `order` are a pair, and the next two, and so on."""
    partners = list(range(len(order)))
    for first, second in zip(order[::2], order[1::2], strict=False):
        partners[first], partners[second] = second, first
    return tuple(partners)
