"""CPU seconds that gradients and parameter updates take on this host.

They serve to check whether the host is fast enough. Each combination is measured once per process, on one thread as in
nodes.
"""

import time
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from services.learning.datasets import DataSource
from services.learning.models import AnyModel
from services.learning.parameter_updater import ParameterUpdater

REPEATS, WARM_UPS = 5, 2


class CpuTimeFunctions(NamedTuple):
    """Functions that return the CPU seconds of a gradient and of a parameter update.

    There is one function for each. The CPU seconds are those on this host.
    """

    gradient_s: Callable[[DataSource, AnyModel, str, int], float]  # dataset, model, dtype, number of samples
    update_s: Callable[[DataSource, AnyModel, str, ParameterUpdater], float]  # dataset, model, dtype, updater


@cache
def measure_gradient_cpu_s(dataset: DataSource, model: AnyModel, dtype: str, sample_count: int) -> float:
    """Measure and return the CPU seconds of one gradient over `sample_count` samples on this host."""
    data = dataset.load(dtype)
    params = model.init_parameters(data.task, 1, dtype)
    return _median_cpu_s(
        lambda: model.loss_and_grad(data.task, params, data.train_x[:sample_count], data.train_y[:sample_count])
    )


@cache
def measure_parameter_update_s(dataset: DataSource, model: AnyModel, dtype: str, updater: ParameterUpdater) -> float:
    """Measure and return the CPU seconds of one update of all parameters on this host."""
    params = model.init_parameters(dataset.describe().task, 1, dtype)
    state = updater.init_state(params)
    return _median_cpu_s(lambda: updater.update_params(params, params, state, 0))


def _median_cpu_s(timed_function: Callable[[], object]) -> float:
    """Return the median CPU seconds of `REPEATS` calls of a function.

    Some warm-up calls come first.
    """
    durations_s = []
    with threadpool_limits(1):
        for _ in range(WARM_UPS + REPEATS):
            started = time.thread_time()
            timed_function()
            durations_s.append(time.thread_time() - started)
    return median(durations_s[WARM_UPS:])


MEASURED_COMPUTE_SPEED = CpuTimeFunctions(measure_gradient_cpu_s, measure_parameter_update_s)
