"""Results of the benchmark of training steps: ratios, gates and tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from benchmarks.compute.step_memory import StepMemory
from benchmarks.compute.step_times import StepTime
from benchmarks.compute.training import Side
from benchmarks.markdown import markdown_table

MAX_MEAN_TIME_RATIO, MAX_TIME_RATIO, MAX_MEMORY_RATIO = 1.2, 2.0, 1.5  # Ensayo over PyTorch
GROWTH_STEPS = 1000
# The smallest piece that glibc allocates has 32 bytes, so half of it per step is less than any leak in every step. The
# measured growth of Ensayo is at most 2 KB (bert_mini).
MAX_GROWTH_BYTES = 16 * GROWTH_STEPS
MB = 1_000_000
MIN_COMPARED_BYTES = MB  # a few pages more or less would decide about smaller peaks
TIME_HEADER = ("model", "threads", "Ensayo, ms", "PyTorch, ms", "ratio, median (range)", "ratio of CPU time", "≤ 2")
GROWTH_HEADER = ("growth Ensayo, KB", "growth PyTorch, KB")
MEMORY_HEADER = ("model", "Ensayo, MB", "PyTorch, MB", "ratio", *GROWTH_HEADER, "≤ 1.5, ≤ 16 KB")


@dataclass(frozen=True)
class CaseTimes:
    """Step times of a case, one sample of each side per round."""

    case_name: str
    threads: int
    samples: Mapping[Side, Sequence[StepTime]]

    @property
    def round_ratios(self) -> list[float]:
        """Time of Ensayo over that of PyTorch, in each round."""
        pairs = zip(self.samples["Ensayo"], self.samples["PyTorch"], strict=True)
        return [ours.wall_s / theirs.wall_s for ours, theirs in pairs]

    @property
    def ratio(self) -> float:
        """Median over the rounds of the time of Ensayo over that of PyTorch."""
        return median(self.round_ratios)

    @property
    def cpu_ratio(self) -> float:
        """CPU time of Ensayo over that of PyTorch: medians over the rounds."""
        ours, theirs = (median(sample.cpu_s for sample in self.samples[side]) for side in ("Ensayo", "PyTorch"))
        return ours / theirs


@dataclass(frozen=True)
class CaseMemory:
    """Memory of a case on both sides."""

    case_name: str
    memory: Mapping[Side, StepMemory]

    @property
    def ratio(self) -> float | None:
        """Peak memory of Ensayo over that of PyTorch; None if both are too small to be measured in pages."""
        ours, theirs = (self.memory[side].peak_bytes for side in ("Ensayo", "PyTorch"))
        return ours / theirs if max(ours, theirs) >= MIN_COMPARED_BYTES else None

    @property
    def growth_bytes(self) -> int:
        """Growth of the memory that Ensayo uses."""
        return self.memory["Ensayo"].growth_bytes

    @property
    def is_within_limits(self) -> bool:
        """Whether peak and growth of Ensayo are within their limits; peaks without a ratio have none."""
        return (self.ratio is None or self.ratio <= MAX_MEMORY_RATIO) and self.growth_bytes <= MAX_GROWTH_BYTES


def time_table(times: Iterable[CaseTimes]) -> Iterator[str]:
    """Yield the lines of the table of step times."""
    yield from markdown_table(TIME_HEADER, map(_time_row, times))


def memory_table(memories: Iterable[CaseMemory]) -> Iterator[str]:
    """Yield the lines of the table of memory."""
    yield from markdown_table(MEMORY_HEADER, map(_memory_row, memories))


def gate_lines(times: Sequence[CaseTimes], memories: Sequence[CaseMemory]) -> Iterator[str]:
    """Yield a line for each gate: the measured value, the limit, and whether it is met."""
    for threads in sorted({case.threads for case in times}):
        ratios = {case.case_name: case.ratio for case in times if case.threads == threads}
        slowest = max(ratios, key=lambda name: ratios[name])
        name = f"step time, {threads} thread{'s' * (threads > 1)}"
        yield _gate_line(f"{name}, geometric mean", geometric_mean(ratios.values()), MAX_MEAN_TIME_RATIO)
        yield _gate_line(f"{name}, slowest model ({slowest})", ratios[slowest], MAX_TIME_RATIO)
    memory_ratios = {case.case_name: case.ratio for case in memories if case.ratio is not None}
    if memory_ratios:
        largest = max(memory_ratios, key=lambda name: memory_ratios[name])
        yield _gate_line(f"peak memory, largest ratio ({largest})", memory_ratios[largest], MAX_MEMORY_RATIO)
    if memories:
        growing = max(memories, key=lambda case: case.growth_bytes)
        name = f"growth of memory over {GROWTH_STEPS:,} steps in KB, largest ({growing.case_name})"
        yield _gate_line(name, growing.growth_bytes / 1000, MAX_GROWTH_BYTES / 1000)


def are_gates_met(lines: Iterable[str]) -> bool:
    """Return whether all gates are met, given their lines."""
    return all(line.endswith(": met") for line in lines)


def _gate_line(name: str, value: float, limit: float) -> str:
    return f"- {name}: {value:.2f}, at most {limit}: {'met' if value <= limit else 'MISSED'}"


def _time_row(case: CaseTimes) -> tuple[str, ...]:
    spread = f"{case.ratio:.2f} ({min(case.round_ratios):.2f} - {max(case.round_ratios):.2f})"
    sides = (_format_spread_ms(case.samples[side]) for side in ("Ensayo", "PyTorch"))
    mark = "ok" if case.ratio <= MAX_TIME_RATIO else "NOT OK"
    return (case.case_name, str(case.threads), *sides, spread, f"{case.cpu_ratio:.2f}", mark)


def _format_spread_ms(samples: Sequence[StepTime]) -> str:
    times_ms = [1e3 * sample.wall_s for sample in samples]
    return f"{median(times_ms):.3g} ({min(times_ms):.3g} - {max(times_ms):.3g})"


def _memory_row(case: CaseMemory) -> tuple[str, ...]:
    ours, theirs = case.memory["Ensayo"], case.memory["PyTorch"]
    mark = "ok" if case.is_within_limits else "NOT OK"
    ratio = "–" if case.ratio is None else f"{case.ratio:.2f}"
    peaks = (f"{side.peak_bytes / MB:.1f}" for side in (ours, theirs))
    growths = (f"{side.growth_bytes / 1000:.1f}" for side in (ours, theirs))
    return (case.case_name, *peaks, ratio, *growths, mark)


REMARKS = f"""\
A step is forward pass, backward pass and update of the optimiser. Ensayo and PyTorch train the same network with the
same batches in one process and take turns. A sample is the mean of a block of steps. PyTorch runs in eager mode.

Ratios are Ensayo / PyTorch. The first ratio compares seconds of the clock, round by round; the gate is for its median.

Peak memory is resident memory above that before training, of a process that trains on one side only and has loaded the
dataset. There is no ratio if both peaks are below 1 MB.

Growth is the change of the memory in use over {GROWTH_STEPS:,} steps, after 100 steps. Resident memory is no measure of
it: it also grows when a free part of the heap is used for the first time. The gate is for Ensayo: a leak in every step
takes at least 32 bytes per step.
"""
