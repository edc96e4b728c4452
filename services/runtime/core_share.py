"""What share of a core does this process get? A fixed piece of mathematics, timed on the wall and on the CPU."""

import time
from typing import NamedTuple

import numpy as np

from services.schema.arrays import HostArray

ROUNDS = 3
PRODUCTS, SIZE = 200, 192  # some 30 ms of one core, three periods of a quota


class Share(NamedTuple):
    """What a run of the kernel took, and how much of a core that was."""

    kernel_s: float  # wall seconds, of the best round
    speed_ratio: float  # CPU seconds per wall second, of the best round


def share_of_a_core() -> Share:
    """Measure now; takes some 0.1 s of one core.

    Of several rounds the best counts: whoever else runs on this core makes rounds slower, and no round can beat a quota
    for long. The first one may, with what the quota has left of its period, and is not counted.
    """
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    rounds = [_timed(matrix) for _ in range(1 + ROUNDS)][1:]
    walls, ratios = zip(*rounds, strict=True)
    return Share(round(min(walls), 6), round(max(ratios), 4))


def _timed(matrix: HostArray) -> tuple[float, float]:
    wall, cpu = time.monotonic(), time.thread_time()
    for _ in range(PRODUCTS):
        _multiply(matrix)
    # The wall clock first: a process without quota left is held back on its way out of a call to the kernel.
    wall_s = time.monotonic() - wall
    return wall_s, (time.thread_time() - cpu) / wall_s


def _multiply(matrix: HostArray) -> None:
    np.matmul(matrix, matrix)
