"""All-reduce: every worker receives the sum of all gradients and updates its own replica.

`strategy` has the strategy and its closed form, `worker` the algorithm of a worker.
"""

from services.strategies.all_reduce.strategy import AllReduce, combine_all_reduce

__all__ = ["AllReduce", "combine_all_reduce"]
