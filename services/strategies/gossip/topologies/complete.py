"""Complete topology: every worker mixes with all others."""

from typing import Literal

from services.strategies.gossip.mixing import MixingRound
from services.strategies.gossip.topologies.base import GossipTopology


class CompleteGossip(GossipTopology):
    """Complete graph: every weight is 1/n, so that mixing gives all workers the mean."""

    kind: Literal["complete"] = "complete"

    def mixing_rounds(self, worker_count: int) -> tuple[MixingRound, ...]:
        row = dict.fromkeys(range(worker_count), 1 / worker_count)
        return (MixingRound((row,) * worker_count),)
