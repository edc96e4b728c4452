"""Ring all-reduce (Patarasuk & Yuan, J. Parallel Distrib. Comput. 69, 2009): n shifted chains."""

from typing import ClassVar, Literal

from services.collectives.base import Collective, Route, shift


class Ring(Collective):
    """Chunk k is summed along the ring from rank k on, then spread along the ring from its owner on.

    Every rank sends 2(n-1)/n of the vector in 2(n-1) messages, whatever n: no other algorithm moves fewer bytes.
    """

    kind: Literal["ring"] = "ring"
    formula: ClassVar[str] = "2(n-1)(α + S/n·β)"

    def routes(self, ranks: int) -> tuple[Route, ...]:
        """Chunk k ends at rank k-1, its owner, after n-1 additions."""
        if ranks == 1:
            return ()
        return tuple(
            Route(chunk=k, sums=tuple(shift(ranks, k)), spreads=tuple(shift(ranks, k - 1))) for k in range(ranks)
        )

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """2(n-1)(alpha + S/n beta): every round moves one chunk over every link at once."""
        return 2 * (ranks - 1) * (alpha_s + size_bytes / ranks * beta_s)
