"""Strategies whose workers train alone for several steps, and then exchange vectors with all other workers.

`local_sgd` averages parameters; `diloco` averages changes, with which an outer optimiser updates common parameters.
`periodic_exchange` has the parts that both share.
"""

from services.strategies.local_training.diloco import DiLoCo
from services.strategies.local_training.local_sgd import LocalSgd

__all__ = ["DiLoCo", "LocalSgd"]
