"""All rows of the endurance benchmark by name."""

from collections.abc import Mapping

from benchmarks.endurance.row import BenchmarkRow
from benchmarks.endurance.rows.starts import START_COUNT, measure_starts

ROWS: Mapping[str, BenchmarkRow] = {
    "starts": BenchmarkRow(
        f"{START_COUNT} starts of a run, most of them interrupted at a random moment", measure_starts
    ),
}
