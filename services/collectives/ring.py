"""Ring all-reduce (Patarasuk & Yuan, J. Parallel Distrib. Comput. 69, 2009): n shifted chains."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from services.collectives.base import Collective, Edge, Route, shift


class Ring(Collective):
    """Chunk k is summed along the ring from rank k on, then spread along the ring from its owner on.

    Every rank sends 2(n-1)/n of the vector in 2(n-1) messages, whatever n: no other algorithm moves fewer bytes.
    """

    kind: Literal["ring"] = "ring"
    formula: ClassVar[str] = "2(n-1)(α + S/n·β)"

    stride: PositiveInt = Field(
        1, description="how far apart the ranks of neighbours are; the size of a rack makes every hop leave the rack"
    )

    def routes(self, ranks: int) -> tuple[Route, ...]:
        """The chunk of place k on the ring ends at the place before it, its owner, after n-1 additions."""
        if ranks == 1:
            return ()
        order = sorted(range(ranks), key=lambda rank: (rank % self.stride, rank))
        return tuple(
            Route(chunk=k, sums=_along(order, shift(ranks, k)), spreads=_along(order, shift(ranks, k - 1)))
            for k in range(ranks)
        )

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """2(n-1)(alpha + S/n beta): every round moves one chunk over every link at once."""
        return 2 * (ranks - 1) * (alpha_s + size_bytes / ranks * beta_s)


def _along(order: Sequence[int], edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Edges between places on the ring as edges between ranks."""
    return tuple((order[source], order[target]) for source, target in edges)
