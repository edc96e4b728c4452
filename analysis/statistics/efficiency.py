"""How much faster on N workers, and where does the rest go? One definition for our runs and for published series.

S(N) = T(base) / T(N)          speedup
E'(N) = S / (N / N_base)       efficiency (Mattson et al., MLPerf Training Benchmark, 2020)
E' = hardware x statistical    (the factors of goodput: Qiao et al., Pollux, OSDI 2021)
statistical = samples-to-target(base) / samples-to-target(N)
hardware = E' / statistical

So their product is E' by definition, and hardware is a remainder, not a measurement: all that E' lost and learning did
not. It is the gain in samples per second and worker as far as T = samples-to-target / rate holds on both sides for the
same runs; `Point.rate_efficiency` of our runs is that gain as measured, and stands beside it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Factors:
    """What a number of workers gives, against a base."""

    speedup: float
    efficiency: float
    hardware: float
    statistical: float | None  # None where samples-to-target are unknown: then all counts as hardware


def speedup(base_time: float, time: float) -> float:
    """S, from times in any unit; never (infinite) is no speedup at all."""
    return base_time / time


def factors(relative: float, speedup: float, statistical: float | None) -> Factors:
    """The factors of `speedup` on `relative` times the workers of the base."""
    efficiency = speedup / relative
    return Factors(speedup, efficiency, efficiency / (statistical or 1), statistical)
