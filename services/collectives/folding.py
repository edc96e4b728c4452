"""How do algorithms for powers of two serve any number of ranks? The others hand in their vectors and wait."""

from collections.abc import Iterable

from services.collectives.base import Round, Transfer


def core(ranks: int) -> tuple[int, ...]:
    """The largest power of two of ranks, without the odd ones of the first pairs."""
    power = 1 << (ranks.bit_length() - 1)
    folded = set(range(1, 2 * (ranks - power), 2))
    return tuple(rank for rank in range(ranks) if rank not in folded)


def folded(ranks: int, parts: int, rounds: Iterable[Round], *, tokens: bool) -> tuple[Round, ...]:
    """`rounds` among the core; before them odd ranks give all to the even ones before them, and get the total after.

    With `tokens`, whoever folds in nobody waits for one, so that its first message does not share a link with a folded
    vector.
    """
    odd = range(1, 2 * (ranks - len(core(ranks))), 2)
    if not odd:
        return tuple(rounds)
    first = tuple(Transfer(rank, rank - 1, 0, parts, "adds") for rank in odd)
    others = core(ranks)[len(odd) :]
    told = tuple(Transfer(odd[k % len(odd)] - 1, rank, 0, parts, "allows") for k, rank in enumerate(others))
    last = tuple(Transfer(rank - 1, rank, 0, parts, "copies") for rank in odd)
    return (first, *((told,) if tokens else ()), *rounds, last)


def fold_s(ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
    """What folding adds to the time of the core: the vector there and back."""
    return 0.0 if ranks == len(core(ranks)) else 2 * (alpha_s + size_bytes * beta_s)
