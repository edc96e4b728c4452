"""Reader of batch sizes and samples to target from published MLPerf logs.

Scaling series are made from these numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis.mlperf.reading.results import MlperfResult, MlperfResults
from analysis.mlperf.reading.scoring import read_mlperf_run
from analysis.mlperf.references import describe_submitter_and_software
from analysis.mlperf.rule_sets.rounds import NEAREST_RULE_SET, RuleSet
from analysis.mlperf.series import ScalingPoint, ScalingSeries, shipped_scaling_series
from analysis.mlperf.study import MlperfStudy
from analysis.reading.logs import mllog
from analysis.reading.logs.mllog import NodeLog
from analysis.statistics.centre import olympic_mean

EPOCH_POSITION_LIMIT = 1000  # smaller positions are epochs; some logs write samples as epoch_num
MIN_RUN_SPREAD = 1e-6  # relative spread of runs that do not differ


@dataclass(frozen=True)
class RunSamplesToTarget:
    """Global batch, duration and number of samples of one MLPerf run.

    Samples or epochs are counted up to the last evaluation.
    """

    position: float  # in `unit`
    unit: str  # samples or epochs
    batch: float  # global batch, in samples
    minutes: float  # infinite where the run does not count


def read_samples_to_target(log: NodeLog, rule_set: RuleSet = NEAREST_RULE_SET) -> RunSamplesToTarget | None:
    """Read the global batch and the number of samples (or epochs) at the last evaluation.

    Return None if one of these numbers is missing.
    """
    timed_positions = [
        (event.time_ms, position)
        for event in log.events_with_key("eval_accuracy")
        if (position := _parse_positive_number(event.metadata.get("samples_count", event.metadata.get("epoch_num"))))
        is not None
    ]
    batches = log.last_event("global_batch_size")
    batch = _parse_positive_number(batches.value) if batches else None
    if not timed_positions or batch is None:
        return None
    position = max(timed_positions)[1]
    unit = "epochs" if position < EPOCH_POSITION_LIMIT else "samples"
    return RunSamplesToTarget(position, unit, batch, read_mlperf_run(log, rule_set).minutes)


def _parse_positive_number(value: Any) -> float | None:
    """Parse a number above 0, which may be a string. Return None for all other values."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < math.inf else None


@lru_cache(maxsize=1)  # several chapters use the series, and a round has a thousand logs
def find_scaling_series(study: MlperfStudy) -> tuple[ScalingSeries, ...]:
    """Return the scaling series of a study of MLPerf results.

    The series are read from published logs, or are those shipped with Ensayo. The result is empty if a user's CSV was
    read.
    """
    return read_scaling_series(study.results) if Path(study.results.source).is_dir() else shipped_scaling_series(study)


def read_scaling_series(mlperf_results: MlperfResults) -> tuple[ScalingSeries, ...]:
    """Read one scaling series per workload from the logs of a result folder.

    A scaling series contains training times by number of accelerators. A series has the results of the kind of
    accelerator with most sizes, and at least two sizes. A size is not included if its logs have no samples, or count
    samples in another unit than the smallest size.
    """
    candidates = (_workload_scaling_series(mlperf_results, benchmark) for benchmark in mlperf_results.benchmarks)
    return tuple(series for series in candidates if len(series.points) > 1)


def _workload_scaling_series(mlperf_results: MlperfResults, benchmark: str) -> ScalingSeries:
    sizes: dict[str, dict[int, list[MlperfResult]]] = {}
    for row in mlperf_results.results_of(benchmark):
        sizes.setdefault(row.accelerator_kind, {}).setdefault(row.accelerator_count, []).append(row)
    kind = max(sizes, key=lambda name: len(sizes[name]))
    row_groups = sizes[kind].values()
    read_sizes = [size for rows in row_groups if (size := _read_scaling_point(mlperf_results, rows)) is not None]
    points = tuple(size for size in read_sizes if size.unit == read_sizes[0].unit)
    counts = {point.accelerators for point in points}
    fastest = [min(rows, key=lambda row: row.minutes) for rows in row_groups if rows[0].accelerator_count in counts]
    return ScalingSeries(points, kind, describe_submitter_and_software(fastest))


def _read_scaling_point(
    mlperf_results: MlperfResults, same_size_results: Sequence[MlperfResult]
) -> ScalingPoint | None:
    """Read the point of a scaling series at one number of accelerators.

    The point has the minutes of the fastest system, and the mean samples and median batch of the runs. Only counted
    runs are used, because an aborted run does not show how many samples the target takes. None if the runs have no
    samples or different units.
    """
    by_system = [
        [run for run in _runs_of_result(mlperf_results, row) if math.isfinite(run.minutes)] for row in same_size_results
    ]
    counted_runs = [run for runs in by_system for run in runs]
    units = {run.unit for run in counted_runs}
    if len(units) != 1:
        return None
    return ScalingPoint(
        benchmark=same_size_results[0].benchmark,
        accelerators=same_size_results[0].accelerator_count,
        minutes=min(row.minutes for row in same_size_results),
        samples=float(np.mean([run.position for run in counted_runs])),
        unit=units.pop(),
        batch=float(np.median([run.batch for run in counted_runs])),
        run_spread=max(MIN_RUN_SPREAD, float(np.median([_relative_run_time_std(runs) for runs in by_system if runs]))),
        runs=max(len(runs) for runs in by_system),
    )


def _runs_of_result(mlperf_results: MlperfResults, result: MlperfResult) -> list[RunSamplesToTarget]:
    rule_set = mlperf_results.rule_set or NEAREST_RULE_SET
    paths = sorted(Path(mlperf_results.source).glob(result.source))
    runs = (read_samples_to_target(mllog.read_log(path), rule_set) for path in paths)
    return [run for run in runs if run is not None]


def _relative_run_time_std(runs: Sequence[RunSamplesToTarget]) -> float:
    """Return the relative standard deviation of the times of runs.

    The result is standard deviation / olympic mean; 0 for a single run.
    """
    minutes = np.array([run.minutes for run in runs])
    return float(minutes.std(ddof=1) / olympic_mean(minutes)) if minutes.size > 1 else 0.0
