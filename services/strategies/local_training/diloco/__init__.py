"""DiLoCo: workers train alone, and an outer optimiser updates common parameters with their mean change.

`strategy` has the strategy and its closed form, `worker` the algorithm of a worker.
"""

from services.strategies.local_training.diloco.strategy import DiLoCo

__all__ = ["DiLoCo"]
