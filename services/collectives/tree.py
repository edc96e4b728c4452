"""Binomial tree: reduce to rank 0, then broadcast (Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005)."""

from typing import ClassVar, Literal

from services.collectives.base import Schedule, Transfer
from services.collectives.rendezvous import Rendezvous


class Tree(Rendezvous):
    """In every round half of the ranks that are left give their sums to the other half; totals go back the same way.

    Textbook form: whole vectors, one after the other.
    """

    kind: Literal["tree"] = "tree"
    closed_form: ClassVar[str] = "(⌊lg n⌋ + 2⌈lg n⌉ - 1)α + 2⌈lg n⌉S·β"
    eager_form: ClassVar[str] = "2⌊lg n⌋α + 2⌈lg n⌉S·β"

    def schedule(self, ranks: int) -> Schedule:
        pairs = [
            [(rank, rank - distance) for rank in range(distance, ranks, 2 * distance)]
            for distance in (1 << bit for bit in range((ranks - 1).bit_length()))
        ]
        sums = (tuple(Transfer(child, parent, 0, 1, "adds") for child, parent in each) for each in pairs)
        totals = (tuple(Transfer(parent, child, 0, 1, "copies") for child, parent in each) for each in reversed(pairs))
        return Schedule(rounds=tuple(self.in_turn((*sums, *totals))))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """As many rounds in each direction as n-1 has binary digits; between those of totals, rank 0 waits for a token.

        Where n is no power of two, the textbook has one more alpha each way: there nobody sends before its round, here
        a rank without children does, and so does rank 0 when vectors are short.
        """
        whole, rounds = ranks.bit_length() - 1, (ranks - 1).bit_length()
        back = 2 * rounds - 1 if self.meets and rounds else whole
        return (whole + back) * alpha_s + 2 * rounds * size_bytes * beta_s
