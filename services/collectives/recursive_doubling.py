"""Recursive doubling, or butterfly (Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19, 2005)."""

from typing import ClassVar, Literal

from services.collectives.base import Schedule, Transfer
from services.collectives.folding import core, fold_s, folded
from services.collectives.swapping import Swapping


class RecursiveDoubling(Swapping):
    """In every round each rank swaps its whole vector with one twice as far away as in the round before.

    Fewest messages, most bytes: for small vectors. Where n is not a power of two, some ranks hand in theirs first.
    """

    kind: Literal["recursive_doubling"] = "recursive_doubling"
    closed_form: ClassVar[str] = "⌊lg n⌋(2α + S·β); + 2(α + S·β) where n ≠ 2^k"
    eager_form: ClassVar[str] = "⌊lg n⌋(α + S·β); + 3α + 2S·β where n ≠ 2^k"

    def schedule(self, ranks: int) -> Schedule:
        members = core(ranks)
        rounds = tuple(
            tuple(Transfer(rank, members[place ^ distance], 0, 1, "adds") for place, rank in enumerate(members))
            for distance in (1 << bit for bit in range(len(members).bit_length() - 1))
        )
        return Schedule(rounds=folded(ranks, 1, self.meeting(rounds), tokens=not self.meets))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """Every round moves the whole vector, behind a token if it is long; to fold takes it twice more.

        A short one's first round waits for a token when some fold.
        """
        token_s = alpha_s * (ranks != len(core(ranks)) and not self.meets)
        swapping_s = (ranks.bit_length() - 1) * (self.alphas * alpha_s + size_bytes * beta_s)
        return token_s + swapping_s + fold_s(ranks, size_bytes, alpha_s, beta_s)
