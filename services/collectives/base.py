"""The contract of a collective: who sums which part of the vector with whom, as data.

A collective cuts the vector into chunks. Per chunk it names the edges to sum along and the edges to spread along;
nothing here sends anything. One executor (`executor.py`) runs every collective, and bytes and messages per rank can be
counted before a run starts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from services.component import Component, Record

Edge = tuple[int, int]  # (from rank, to rank)


class Route(Record):
    """The way of one chunk: its partial sums travel along `sums` to the root, its total along `spreads` to everybody.

    Both lists are in the order in which a rank adds or forwards; a rank has at most one outgoing sum edge and at most
    one incoming spread edge, so every chunk is reduced along one path and all replicas hold the same bits.
    """

    chunk: int
    sums: tuple[Edge, ...]
    spreads: tuple[Edge, ...]

    def adds_from(self, rank: int) -> tuple[int, ...]:
        """Ranks whose partial sums `rank` adds to its own, in order."""
        return tuple(source for source, target in self.sums if target == rank)

    def passes_to(self, rank: int) -> tuple[int, ...]:
        """The rank that receives the partial sum of `rank`; empty for the root."""
        return tuple(target for source, target in self.sums if source == rank)

    def copies_from(self, rank: int) -> tuple[int, ...]:
        """The rank that gives `rank` the total; empty for the root."""
        return tuple(source for source, target in self.spreads if target == rank)

    def spreads_to(self, rank: int) -> tuple[int, ...]:
        """Ranks to which `rank` forwards the total."""
        return tuple(target for source, target in self.spreads if source == rank)

    def partners(self, rank: int) -> tuple[int, ...]:
        """Ranks to which `rank` sends anything."""
        return self.passes_to(rank) + self.spreads_to(rank)

    def latency_s(self, waits_s: Mapping[Edge, float]) -> float:
        """Seconds that the chunk spends waiting on its longest way to the root and on to the last rank.

        `waits_s` is what each edge takes beside moving bytes.
        """
        return _longest(self.sums, waits_s) + _longest(self.spreads, waits_s)

    def sends(self, rank: int) -> int:
        """Messages that `rank` sends for this chunk, before it is cut into pieces."""
        return len(self.partners(rank))


def _longest(edges: Iterable[Edge], waits_s: Mapping[Edge, float]) -> float:
    """The longest chain of edges that follow each other; edges come in the order in which they are used."""
    arrived: dict[int, float] = {}
    for source, target in edges:
        arrived[target] = max(arrived.get(target, 0.0), arrived.get(source, 0.0) + waits_s[source, target])
    return max(arrived.values(), default=0.0)


class Collective(Component, ABC):
    """A way for n ranks to end up with the sum of their vectors."""

    formula: ClassVar[str]  # `seconds` as a reader of a report should see it

    @abstractmethod
    def routes(self, ranks: int) -> tuple[Route, ...]:
        """One route per chunk; no routes for a single rank."""

    @abstractmethod
    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """Closed form of the run time: `alpha_s` seconds per message, `beta_s` seconds per byte and direction."""


def shift(ranks: int, start: int) -> Iterable[Edge]:
    """The n-1 edges of the chain that begins at `start` and follows the ranks upwards, round the corner."""
    return (((start + hop) % ranks, (start + hop + 1) % ranks) for hop in range(ranks - 1))
