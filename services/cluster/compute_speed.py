"""Compute speed of a worker as a scenario declares it: in samples per second, or as a share of a device's peak."""

from typing import NamedTuple

from services.cluster.device_profiles import PEAK_FLOP_PER_S, RELATIVE_THROUGHPUT, DeviceName
from services.schema.component import FrozenRecord
from services.schema.units import Operations, Throughput


class SampleOperations(NamedTuple):
    """Floating-point operations of a training step for one sample, and where their number comes from."""

    flops: float
    source: str


class ComputeSpeed(FrozenRecord):
    """Compute speed of a worker in training samples per second, and how it follows from declared keys."""

    samples_per_s: float
    derivation: str


def scale_declared_throughput(throughput: Throughput, profile: DeviceName | None, speed: float) -> ComputeSpeed:
    """Return the speed of a worker that declares the throughput of an A100, or its own throughput without a profile."""
    relative_throughput = RELATIVE_THROUGHPUT[profile] if profile else 1.0
    factors = [f"throughput {throughput}"]
    factors += [f"{relative_throughput:g} ({profile} relative to a100)"] if profile else []
    return ComputeSpeed(
        samples_per_s=throughput * relative_throughput * speed, derivation=_join_factors(factors, speed)
    )


def speed_from_utilisation(
    utilisation: float, profile: DeviceName, speed: float, sample_operations: SampleOperations
) -> ComputeSpeed:
    """Return the speed of a worker that declares the share of its device's peak that training sustains."""
    peak = PEAK_FLOP_PER_S[profile]
    factors = [f"utilisation {utilisation:g}", f"{peak / 1e12:g} TFLOP/s ({profile})"]
    operations = f"{_format_operations(sample_operations.flops)} per sample ({sample_operations.source})"
    return ComputeSpeed(
        samples_per_s=utilisation * peak * speed / sample_operations.flops,
        derivation=f"{_join_factors(factors, speed)} / {operations}",
    )


def _join_factors(factors: list[str], speed: float) -> str:
    return " x ".join([*factors, *([f"speed {speed:g}"] if speed != 1 else [])])


def _format_operations(flops: float) -> str:
    """Return operations with a unit and three significant digits, such as `24.5 GFLOP`."""
    unit, size = max(
        ((unit, size) for unit, size in Operations.units.items() if size <= flops),
        key=lambda item: item[1],
        default=("FLOP", 1.0),
    )
    return f"{flops / size:.3g} {unit}"
