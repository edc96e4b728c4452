"""Topology of a graph that the scenario declares by its edges."""

from typing import Literal

from pydantic import Field, NonNegativeInt

from services.schema.conflicts import KeyConflict
from services.strategies.gossip.mixing import MixingRound, metropolis_round
from services.strategies.gossip.topologies.base import GossipTopology


class GraphGossip(GossipTopology):
    """Connected graph without directions: neighbours mix with Metropolis weights."""

    kind: Literal["graph"] = "graph"
    edges: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = Field(
        description="pairs of ranks that exchange their parameters, such as [[0, 1], [1, 2]]"
    )

    def mixing_rounds(self, worker_count: int) -> tuple[MixingRound, ...]:
        return (metropolis_round(self._neighbours(worker_count)),)

    def _neighbours(self, worker_count: int) -> tuple[frozenset[int], ...]:
        linked: list[set[int]] = [set() for _ in range(worker_count)]
        for first, second in self.edges:
            linked[first].add(second)
            linked[second].add(first)
        return tuple(map(frozenset, linked))

    def find_conflict(self, worker_count: int) -> KeyConflict | None:
        for number, edge in enumerate(self.edges):
            if edge[0] == edge[1]:
                why = f"an edge connects two different workers, not {edge[0]} with itself; remove the edge"
                return KeyConflict(("edges", number), why)
            if max(edge) >= worker_count:
                why = f"there is no worker {max(edge)}; ranks of {worker_count} workers are 0 to {worker_count - 1}"
                return KeyConflict(("edges", number), why)
        if unreached := set(range(worker_count)) - self._ranks_reached_from_first(worker_count):
            why = (
                f"the graph is not connected: there is no path from worker 0 to worker {min(unreached)}, so their "
                "parameters would never mix"
            )
            return KeyConflict(("edges",), f"{why}; add edges until all workers are connected")
        return None

    def _ranks_reached_from_first(self, worker_count: int) -> set[int]:
        neighbours, reached, frontier = self._neighbours(worker_count), {0}, {0}
        while frontier:
            frontier = {other for rank in frontier for other in neighbours[rank]} - reached
            reached |= frontier
        return reached
