"""Speedup, efficiency, and the two factors of efficiency.

The definitions are the same for Ensayo's runs and for published results.

S(N) = T(base) / T(N)          speedup
E'(N) = S / (N / N_base)       efficiency (Mattson et al., MLPerf Training Benchmark, 2020)
E' = hardware x statistical    factors of goodput (Qiao et al., Pollux, OSDI 2021)
statistical = samples-to-target(base) / samples-to-target(N)
hardware = E' / statistical

The product of the factors is E' by definition, so hardware efficiency is not measured: it is the part of E' that the
samples to target do not explain. It equals the gain in samples per second and worker where T = samples-to-target / rate
holds for the same runs on both sides. `SpeedupPoint.throughput_efficiency` is that gain as measured.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ScalingEfficiency:
    """Speedup and efficiency compared with a base run.

    The efficiency is split into a hardware and a statistical factor.
    """

    speedup: float
    efficiency: float
    hardware: float | None  # both factors are None, not measured, where samples to the target are unknown
    statistical: float | None


def speedup(base_time: float, time: float) -> float:
    """Return the speedup: base time / time, both in the same unit.

    Return 0 for an infinite time.
    """
    return base_time / time


def compute_efficiency(
    worker_count_ratio: float, speedup: float, statistical_efficiency: float | None
) -> ScalingEfficiency:
    """Return the efficiency of a speedup, split into hardware and statistical efficiency.

    Without a statistical efficiency, the efficiency is not split. `worker_count_ratio` is the number of workers /
    number of workers of the base.
    """
    efficiency = speedup / worker_count_ratio
    hardware = efficiency / statistical_efficiency if statistical_efficiency else None
    return ScalingEfficiency(speedup, efficiency, hardware, statistical_efficiency)
