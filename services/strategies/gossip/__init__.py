"""Synchronous gossip: workers average their parameters with a few others, without an all-reduce and without servers.

`d_psgd` mixes with the neighbours of a topology in every step, `noloco` with one random partner every few steps. Before
an evaluation, an all-reduce computes the mean of the parameters of all workers (`evaluation_mean`).
"""

from services.strategies.gossip.d_psgd import DPsgd
from services.strategies.gossip.noloco import NoLoCo

__all__ = ["DPsgd", "NoLoCo"]
