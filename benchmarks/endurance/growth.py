"""Growth of counts over a series: the median of the last samples compared with that of the first."""

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.endurance.row import ResultLine
from services.schema.component import FrozenRecord

SAMPLES_PER_END = 10
ALLOWED_GROWTH = {
    "descriptors": 5.0,  # connections that a program has just opened or closed
    "memory_mb": 20.0,  # 0.1 MB per trial: free memory that the allocator keeps, and results of trials
}
NOT_LIMITED = ("engine_memory_mb",)  # memory of another program


def list_growth_lines(samples: Sequence[FrozenRecord]) -> Iterator[ResultLine]:
    """Yield one line per field of the samples, which are records of numbers."""
    count = min(SAMPLES_PER_END, max(1, len(samples) // 2))
    for name in type(samples[0]).model_fields if samples else ():
        first = median(getattr(sample, name) for sample in samples[:count])
        last = median(getattr(sample, name) for sample in samples[-count:])
        allowed = ALLOWED_GROWTH.get(name, 0.0)
        is_limited = name not in NOT_LIMITED
        yield ResultLine(
            what=f"{name.replace('_', ' ')}, median of the first and of the last {count}",
            result=f"{first:g} → {last:g}",
            limit=(f"growth of at most {allowed:g}" if allowed else "no growth") if is_limited else "–",
            is_met=not is_limited or last - first <= allowed,
        )
