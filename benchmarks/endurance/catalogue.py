"""All rows of the endurance benchmark by name."""

from collections.abc import Mapping

from benchmarks.endurance.row import BenchmarkRow
from benchmarks.endurance.rows.many_containers import (
    NODE_COUNT,
    RUN_COUNT,
    measure_containers,
    measure_parallel_runs,
)
from benchmarks.endurance.rows.outages import measure_full_disk, measure_lost_engine
from benchmarks.endurance.rows.starts import START_COUNT, measure_starts
from benchmarks.endurance.rows.trials import TRIAL_COUNT, measure_trials

ROWS: Mapping[str, BenchmarkRow] = {
    "starts": BenchmarkRow(f"{START_COUNT} starts in containers, most interrupted at a random moment", measure_starts),
    "trials": BenchmarkRow(f"{TRIAL_COUNT} trials in one run with the engine local", measure_trials),
    "parallel": BenchmarkRow(f"{RUN_COUNT} runs in containers at once", measure_parallel_runs),
    "containers": BenchmarkRow(f"one trial with {NODE_COUNT} nodes, each in a container", measure_containers),
    "engine": BenchmarkRow("the Docker engine is killed in the middle of a run", measure_lost_engine),
    "disk": BenchmarkRow("the disk becomes full in the middle of a run with the engine local", measure_full_disk),
}
