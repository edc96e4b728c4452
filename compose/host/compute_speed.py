"""What does this host need for the mathematics of a node? Measured once per process, on one thread as in nodes."""

import time
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from services.learning.datasets import AnyDataset
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser

REPEATS, WARM_UPS = 5, 2


class Mathematics(NamedTuple):
    """What a host needs for it, in CPU seconds."""

    gradient_s: Callable[[AnyDataset, AnyModel, str, int], float]  # of so many samples
    update_s: Callable[[AnyDataset, AnyModel, str, AnyOptimiser], float]


@cache
def gradient_s(dataset: AnyDataset, model: AnyModel, dtype: str, samples: int) -> float:
    """CPU seconds of one gradient of so many samples."""
    data = dataset.load(dtype)
    params = model.init(data.task, 1, dtype)
    return _cpu_s(lambda: model.loss_and_grad(data.task, params, data.train_x[:samples], data.train_y[:samples]))


@cache
def update_s(dataset: AnyDataset, model: AnyModel, dtype: str, optimiser: AnyOptimiser) -> float:
    """CPU seconds of one update of all parameters."""
    params = model.init(dataset.load(dtype).task, 1, dtype)
    state = optimiser.init(params)
    return _cpu_s(lambda: optimiser.step(params, params, state))


def _cpu_s(work: Callable[[], object]) -> float:
    """The median over some repeats."""
    taken = []
    with threadpool_limits(1):
        for _ in range(WARM_UPS + REPEATS):
            started = time.thread_time()
            work()
            taken.append(time.thread_time() - started)
    return median(taken[WARM_UPS:])


MEASURED = Mathematics(gradient_s, update_s)
