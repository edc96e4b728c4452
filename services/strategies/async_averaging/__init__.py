"""Strategies whose workers average their parameters with a few other workers, without waiting for all.

`partial_all_reduce` and `ad_psgd` have the strategies; `…_worker` the algorithm of a worker, `…_prediction` the closed
form. `group_generator` decides which workers form a group, `group_generator_service` runs it on worker 0, and workers
use it with `group_client` and `group_messages`. `passive_averaging` averages the parameters of a passive worker.
"""

from services.strategies.async_averaging.ad_psgd import AdPsgd
from services.strategies.async_averaging.partial_all_reduce import PartialAllReduce

__all__ = ["AdPsgd", "PartialAllReduce"]
