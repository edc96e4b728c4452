"""States of workers after a change of the number of workers: n workers continue as m workers.

A worker of the new membership continues a worker of the old one, or is new. The first continuing worker also takes over
what the removed workers have not sent. The rules keep all sums over the workers, apart from rounding:

| part of the state | continuing worker | first continuing worker, in addition | new worker |
| --- | --- | --- | --- |
| equal replicas: parameters, optimiser, versions | unchanged | nothing | copy of the first |
| residuals and velocities of compressors | e·w/w' | Σ e·w/w' of the removed | zero |
| parameters and optimiser's vectors of local training | unchanged | their mean with those of the removed | see below |
| samples since the last exchange | unchanged | Σ of the removed | none |

w is the weight of a worker's vectors in an update before the change, and w' the weight afterwards. So Σ w·e stays the
same. Collectives add vectors to which the weight has been applied before compression: their residuals are added as they
are. Servers apply weights after decompression. The means of local training are weighted by the samples since the last
exchange, so the next exchange has the same result as without the change. There, a new worker begins with the common
parameters, and with a copy of the optimiser's state of the first.

The position in the data is a number of steps, and most random numbers are functions of seed, step and rank.
Compressors draw by seed, sender and number of the vector: the number is part of their state, the sender is that of
the new rank. Where every worker owns a part of the samples, other workers need another partition, which no state
contains.
"""

from services.checkpoints.other_worker_count.strategy_states import (
    UnsupportedWorkerChange,
    WorkerSnapshot,
    change_workers,
)
from services.checkpoints.other_worker_count.worker_change import WorkerChange

__all__ = ["UnsupportedWorkerChange", "WorkerChange", "WorkerSnapshot", "change_workers"]
