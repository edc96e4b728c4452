"""Exponential topology with one peer per step, at distances that are powers of two."""

from typing import Literal

from services.strategies.gossip.mixing import MixingRound, pair_round, shift_round
from services.strategies.gossip.topologies.base import GossipTopology


class ExponentialGossip(GossipTopology):
    """One-peer exponential graph: in step t, a worker sends to the rank at the distance 2^(t modulo ⌈lg n⌉).

    Both vectors have the weight 1/2. If n is a power of two, lg n rounds give all workers the exact mean. B. Ying, K.
    Yuan, Y. Chen, H. Hu, P. Pan, W. Yin, "Exponential graph is provably efficient for decentralized deep training",
    NeurIPS 2021.
    """

    kind: Literal["exponential"] = "exponential"

    def mixing_rounds(self, worker_count: int) -> tuple[MixingRound, ...]:
        if worker_count == 1:
            return (pair_round((0,)),)
        return tuple(shift_round(worker_count, 1 << bit) for bit in range((worker_count - 1).bit_length()))
