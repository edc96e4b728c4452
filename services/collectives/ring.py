"""Ring all-reduce (Patarasuk & Yuan, J. Parallel Distrib. Comput. 69, 2009): every chunk goes round twice."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from services.collectives.base import Collective, Does, Round, Schedule, Site, Transfer
from services.collectives.recursive_doubling import RecursiveDoubling
from services.schema.conflicts import Conflict, refuse
from services.schema.units import Bytes


class Ring(Collective):
    """Chunk k is summed along the ring from place k on, then spread along the ring from its owner on.

    Every rank sends 2(n-1)/n of the vector in 2(n-1) messages, whatever n: no other algorithm moves fewer bytes.
    """

    kind: Literal["ring"] = "ring"
    closed_form: ClassVar[str] = "2(n-1)(α + S/n·β)"

    stride: PositiveInt = Field(
        1, description="how far apart the ranks of neighbours are; the size of a rack makes every hop leave the rack"
    )
    order: Literal["ranks", "racks"] = Field(
        "ranks", description="racks: rack by rack, or region by region, so that one hop leaves each"
    )
    sequence: tuple[NonNegativeInt, ...] = Field(
        (), description="the ranks in the order of the ring; when absent, order and stride decide"
    )
    small: Bytes | None = Field(
        None, description="vectors up to this size are summed by recursive_doubling instead; none when absent"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[Conflict]:
        if self.stride > 1 and (self.order == "racks" or self.sequence):
            yield Conflict(("stride",), "it orders the ranks by their numbers; leave out order and sequence")

    def refusal(self, ranks: int) -> str | None:
        if not self.sequence or sorted(self.sequence) == list(range(ranks)):
            return None
        return f"sequence of the ring holds the ranks 0 to {ranks - 1}, each once; it is {list(self.sequence)}"

    def settled(self, site: Site) -> Self:
        if self.order == "ranks" or self.sequence:
            return self
        return self.model_copy(update={"sequence": tuple(rank for rack in site.racks for rank in rack)})

    def candidates(self, site: Site) -> tuple[Collective, ...]:
        """Itself, unless the vector of a trial is a small one: a plan then has the other in its place."""
        is_small = self.small is not None and site.vector_bytes <= self.small
        return ((RecursiveDoubling() if is_small else self).settled(site),)

    def schedule(self, ranks: int) -> Schedule:
        order = self.sequence or sorted(range(ranks), key=lambda rank: (rank % self.stride, rank))
        return Schedule(parts=ranks, rounds=tuple(rounds_of_ring(order)), pipelined=True)

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """2(n-1)(alpha + S/n beta): every round moves one chunk over every link at once."""
        return 2 * (ranks - 1) * (alpha_s + size_bytes / ranks * beta_s)

    def hidden_s(self, ranks: int, size_bytes: float, piece_bytes: int, moving_s: float, waits_s: float) -> float:
        """Links are never idle but for one wait; or, over long ways, they are but for one piece in every hop."""
        if ranks == 1:
            return 0.0
        of_chunk = min(1.0, piece_bytes * ranks / size_bytes)
        return (1 - 1 / (2 * (ranks - 1))) * min(waits_s, (1 - of_chunk) * moving_s)


def rounds_of_ring(order: Sequence[int], first_chunk: int = 0) -> Iterator[Round]:
    """All-reduce of as many chunks, numbered from `first_chunk`, as there are ranks in `order`."""
    hops = range(len(order) - 1)
    yield from (_hop(order, first_chunk, -hop, "adds") for hop in hops)
    yield from (_hop(order, first_chunk, 1 - hop, "copies") for hop in hops)


def _hop(order: Sequence[int], first_chunk: int, shift: int, does: Does) -> Round:
    """Every rank sends one chunk to the next: the one with its own place's number, shifted."""
    ranks = len(order)
    chunks = [first_chunk + (place + shift) % ranks for place in range(ranks)]
    return tuple(
        Transfer(order[place], order[(place + 1) % ranks], chunk, chunk + 1, does) for place, chunk in enumerate(chunks)
    )
