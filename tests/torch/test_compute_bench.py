"""The benchmark of training steps measures both sides."""

import pytest

pytest.importorskip("torch")

from benchmarks.compute.__main__ import _run_in_process
from benchmarks.compute.training import SIDES

pytestmark = pytest.mark.torch


def test_both_sides_have_one_sample_per_round() -> None:
    """Ratios are computed round by round."""
    samples = _run_in_process("step_times", "linear", "5", threads=1)

    assert [len(samples[side]) for side in SIDES] == [5, 5]
    assert all(sample["wall_s"] > 0 and sample["cpu_s"] > 0 for side in SIDES for sample in samples[side])


@pytest.mark.parametrize("side", SIDES)
def test_peak_memory_contains_the_arrays_of_a_step(side: str) -> None:
    """LeNet-5 with 128 samples keeps at least the outputs of its convolutions: 7 MB."""
    memory = _run_in_process("step_memory", "lenet5", side, "0", threads=1)

    assert 7_000_000 < memory["peak_bytes"] < 200_000_000
