"""Measurement of the share of a CPU core that this process gets.

The measurement is a matrix product, timed in wall and CPU seconds.
"""

import time
from typing import NamedTuple

import numpy as np

from services.schema.arrays import HostArray

TIMED_ROUNDS = 3
PRODUCTS_PER_ROUND, MATRIX_SIZE = 200, 192  # some 30 ms of one core, three periods of a CPU quota


class CpuCoreShare(NamedTuple):
    """Share of a CPU core that a process gets, and wall time of a fixed computation.

    The computation is a fixed amount of matrix products.
    """

    kernel_s: float  # wall seconds, of the fastest round
    speed_ratio: float  # CPU seconds per wall second, of the best round


def measure_cpu_core_share() -> CpuCoreShare:
    """Measure the share of a CPU core that the calling thread gets.

    The measurement takes about 0.1 s. The best of several rounds counts: other load on the core makes rounds slower,
    and no round can exceed a CPU quota for long. The first round can, with what is left of the quota's current period,
    and is not counted.
    """
    matrix = np.random.default_rng(0).standard_normal((MATRIX_SIZE, MATRIX_SIZE)).astype(np.float32)
    rounds = [_time_matrix_products(matrix) for _ in range(1 + TIMED_ROUNDS)][1:]
    wall_times_s, speed_ratios = zip(*rounds, strict=True)
    return CpuCoreShare(round(min(wall_times_s), 6), round(max(speed_ratios), 4))


def _time_matrix_products(matrix: HostArray) -> tuple[float, float]:
    """Compute a fixed number of matrix products, and measure the time.

    Return wall seconds, and CPU seconds per wall second.
    """
    wall_start_s, cpu_start_s = time.monotonic(), time.thread_time()
    for _ in range(PRODUCTS_PER_ROUND):
        _run_matrix_product(matrix)
    # Read the wall clock first: a process that has used up its quota is held back on return from a system call.
    wall_s = time.monotonic() - wall_start_s
    return wall_s, (time.thread_time() - cpu_start_s) / wall_s


def _run_matrix_product(matrix: HostArray) -> None:
    np.matmul(matrix, matrix)
