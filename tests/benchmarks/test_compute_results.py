"""Tables and gates of the benchmark of training steps."""

from collections.abc import Sequence

import pytest

from benchmarks.compute.results import CaseMemory, CaseTimes, are_gates_met, gate_lines, memory_table, time_table
from benchmarks.compute.step_memory import StepMemory
from benchmarks.compute.step_times import StepTime

MB = 1_000_000


def case_times(name: str, ours_ms: Sequence[float], theirs_ms: Sequence[float], threads: int = 1) -> CaseTimes:
    """Return the times of a case, whose CPU time is twice the time of the clock for Ensayo and equal for PyTorch."""
    ours = [StepTime(1e-3 * ms, 2e-3 * ms) for ms in ours_ms]
    theirs = [StepTime(1e-3 * ms, 1e-3 * ms) for ms in theirs_ms]
    return CaseTimes(name, threads, {"Ensayo": ours, "PyTorch": theirs})


def case_memory(name: str, ours_bytes: int, theirs_bytes: int, growth_bytes: int = 0) -> CaseMemory:
    """Return the memory of a case, with a growth of Ensayo; that of PyTorch grows by 1 MB."""
    ours, theirs = StepMemory(ours_bytes, growth_bytes), StepMemory(theirs_bytes, MB)
    return CaseMemory(name, {"Ensayo": ours, "PyTorch": theirs})


SMALL_MEMORY = [case_memory("mlp", MB // 4, MB // 10)]


def test_the_ratio_compares_both_sides_round_by_round() -> None:
    """Load that slows a whole round down changes both sides, so the ratio of the round stays right."""
    case = case_times("mlp", [3, 30, 4], [2, 20, 4])

    assert case.round_ratios == pytest.approx([1.5, 1.5, 1.0])
    assert case.ratio == pytest.approx(1.5)
    assert case.cpu_ratio == pytest.approx(2 * 4 / 4)


def test_gates_are_met_at_their_limits() -> None:
    """A geometric mean of 1.2, a slowest model of 2, a peak of 1.5 and a growth of 16 KB are allowed."""
    times = [case_times("a", [2.0] * 5, [1.0] * 5), case_times("b", [0.72] * 5, [1.0] * 5)]

    lines = list(gate_lines(times, [case_memory("a", 3 * MB, 2 * MB, 16_000)]))

    assert [line.rpartition(": ")[2] for line in lines] == ["met", "met", "met", "met"]
    assert are_gates_met(lines)


@pytest.mark.parametrize(
    ("ours_ms", "ours_bytes", "missed"),
    [
        ([2.1, 0.5], MB, "- step time, 1 thread, slowest model (a): 2.10, at most 2.0: MISSED"),
        ([1.3, 1.3], MB, "- step time, 1 thread, geometric mean: 1.30, at most 1.2: MISSED"),
        ([1.0, 1.0], 2 * MB, "- peak memory, largest ratio (a): 2.00, at most 1.5: MISSED"),
    ],
    ids=["slowest", "mean", "memory"],
)
def test_a_gate_is_reported_as_missed_beyond_its_limit(ours_ms: list[float], ours_bytes: int, missed: str) -> None:
    """A missed gate must not look like a met one, nor be hidden by the others."""
    times = [case_times(name, [ms] * 5, [1.0] * 5) for name, ms in zip("ab", ours_ms, strict=True)]

    lines = list(gate_lines(times, [case_memory("a", ours_bytes, MB)]))

    assert [line for line in lines if not line.endswith(": met")] == [missed]
    assert not are_gates_met(lines)


def test_each_number_of_threads_has_its_own_gates() -> None:
    """A fast result with one thread must not hide a slow one with two."""
    times = [case_times("a", [1.0] * 5, [1.0] * 5), case_times("a", [3.0] * 5, [1.0] * 5, threads=2)]

    lines = list(gate_lines(times, SMALL_MEMORY))

    assert [line.endswith(": met") for line in lines] == [True, True, False, False, True]


def test_memory_below_the_size_of_measurable_differences_has_no_ratio_and_no_gate() -> None:
    """A few pages more or less would decide."""
    (_, _, row) = memory_table(SMALL_MEMORY)

    assert row == "| mlp | 0.2 | 0.1 | – | 0.0 | 1000.0 | ok |"
    assert not [line for line in gate_lines([case_times("a", [1.0], [1.0])], SMALL_MEMORY) if "peak" in line]


def test_rows_show_median_range_and_mark() -> None:
    """The spread shows how much a ratio can be trusted."""
    (_, _, row) = time_table([case_times("mlp", [4, 6, 5], [2, 2, 2])])

    assert row == "| mlp | 1 | 5 (4 - 6) | 2 (2 - 2) | 2.50 (2.00 - 3.00) | 5.00 | NOT OK |"


def test_rows_mark_memory_beyond_the_limit() -> None:
    """The table and the line of the gate must agree."""
    (_, _, row) = memory_table([case_memory("mlp", 3 * MB, MB)])

    assert row == "| mlp | 3.0 | 1.0 | 3.00 | 0.0 | 1000.0 | NOT OK |"


def test_growing_memory_misses_a_gate_of_its_own() -> None:
    """A long run would use up the memory of its node, however small the peak of its first steps is."""
    growing = case_memory("mlp", MB // 4, MB // 10, growth_bytes=32_000)  # one leaked object per step

    lines = list(gate_lines([case_times("a", [1.0], [1.0])], [case_memory("linear", MB // 4, MB // 10), growing]))
    (_, _, row) = memory_table([growing])

    missed = "- growth of memory over 1,000 steps in KB, largest (mlp): 32.00, at most 16.0: MISSED"
    assert [line for line in lines if not line.endswith(": met")] == [missed]
    assert row.endswith("| 32.0 | 1000.0 | NOT OK |")
