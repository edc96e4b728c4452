"""Registry of the strategies with one training phase: the candidates of an automatic choice.

`services/strategies/__init__.py` adds the strategies that switch between two of them.
"""

from typing import TypeAlias

from services.strategies.all_reduce import AllReduce
from services.strategies.async_averaging import AdPsgd, PartialAllReduce
from services.strategies.gossip import DPsgd, NoLoCo
from services.strategies.local_training import DiLoCo, LocalSgd
from services.strategies.server_based import Easgd, ParameterServer
from services.strategies.single_worker import SingleWorker

AnySinglePhaseStrategy: TypeAlias = (
    SingleWorker  # the baseline of every speedup
    | AllReduce
    | LocalSgd
    | DiLoCo
    | DPsgd
    | NoLoCo
    | PartialAllReduce
    | AdPsgd
    | ParameterServer
    | Easgd
)
