"""Benchmark of checkpoints: every row is measured once per round, and the table has medians and ranges."""

from pathlib import Path

from benchmarks.checkpoints import list_result_lines, measure_checkpoints


def test_measurement_has_one_sample_per_round_and_row_and_leaves_one_file(tmp_path: Path) -> None:
    """The first round, in which memory is new, does not count."""
    seconds = measure_checkpoints(tmp_path, state_bytes=8000, rounds=3)

    assert {len(samples) for samples in seconds.values()} == {3}
    assert all(min(samples) > 0 for samples in seconds.values())
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size > 8000


def test_table_has_median_range_and_rate_of_each_row() -> None:
    """One slow round must not decide."""
    *_, row = list_result_lines({"write": [0.25, 9.0, 0.2]})

    assert row == "| write | 0.250 | 0.200 - 9.000 | 400 |"
