"""Ring topology: every worker mixes with the next lower and the next higher rank."""

from typing import Literal

from services.strategies.gossip.mixing import MixingRound, metropolis_round
from services.strategies.gossip.topologies.base import GossipTopology


class RingGossip(GossipTopology):
    """Ring: two neighbours, each with the weight 1/3; of two workers, one neighbour with the weight 1/2."""

    kind: Literal["ring"] = "ring"

    def mixing_rounds(self, worker_count: int) -> tuple[MixingRound, ...]:
        neighbours = ({(rank - 1) % worker_count, (rank + 1) % worker_count} - {rank} for rank in range(worker_count))
        return (metropolis_round(tuple(neighbours)),)
