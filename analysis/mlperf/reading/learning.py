"""How many samples did a run learn from, in batches of which size? Read from published logs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.reading.results import Result, Results
from analysis.mlperf.reading.scoring import judge
from analysis.mlperf.series import Series, Size, shipped_with
from analysis.mlperf.study import Study
from analysis.reading import mllog
from analysis.reading.mllog import NodeLog
from analysis.statistics.centre import olympic_mean

EPOCHS = 1000  # a position below it counts epochs; some write samples under the name of epochs
EXACT = 1e-6  # spread of runs that do not differ, as a share


@dataclass(frozen=True)
class Learned:
    """One run to its last evaluation."""

    position: float  # in `unit`
    unit: str  # samples or epochs
    batch: float  # global, in samples
    minutes: float  # infinite where the run does not count


def learned(log: NodeLog) -> Learned | None:
    """The position at the last evaluation, by time; None where the log tells no position or no batch."""
    told = [
        (event.time_ms, position)
        for event in log.events_with_key("eval_accuracy")
        if (position := _above_zero(event.metadata.get("samples_count", event.metadata.get("epoch_num")))) is not None
    ]
    batches = log.last_event("global_batch_size")
    batch = _above_zero(batches.value) if batches else None
    if not told or batch is None:
        return None
    position = max(told)[1]
    return Learned(position, "epochs" if position < EPOCHS else "samples", batch, judge(log).minutes)


def _above_zero(value: Any) -> float | None:
    """The number, which some write as a string; None for what is none, or not above 0."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < math.inf else None


@lru_cache(maxsize=1)  # several chapters of one page ask, and a round has a thousand logs
def series_of(study: Study) -> tuple[Series, ...]:
    """The shipped series, or those that the logs of a folder tell; a table alone tells none."""
    return series_in(study.results) if Path(study.results.source).is_dir() else shipped_with(study)


def series_in(results: Results) -> tuple[Series, ...]:
    """Of each workload the kind of accelerator that comes in most sizes, two at least; results read from a folder.

    Sizes whose logs tell no samples, or in another unit than the smallest, are left out.
    """
    found = (_series(results, benchmark) for benchmark in results.benchmarks)
    return tuple(series for series in found if len(series.sizes) > 1)


def _series(results: Results, benchmark: str) -> Series:
    rows = results.of(benchmark)
    sizes: dict[str, dict[int, list[Result]]] = {}
    for row in rows:
        sizes.setdefault(family(row.accelerator), {}).setdefault(row.accelerator_count, []).append(row)
    kind = max(sizes, key=lambda name: len(sizes[name]))
    told = [size for own in sizes[kind].values() if (size := _size(Path(results.source), own)) is not None]
    return Series(tuple(size for size in told if size.unit == told[0].unit), kind)


def _size(root: Path, rows: Sequence[Result]) -> Size | None:
    """The fastest system's minutes, and what all systems of that size learned from, in runs that count.

    One that was aborted or missed the target says how long it went on, not how many samples the target takes.
    """
    by_system = [[run for run in _runs(root, row) if math.isfinite(run.minutes)] for row in rows]
    every = [run for runs in by_system for run in runs]
    units = {run.unit for run in every}
    if len(units) != 1:
        return None
    return Size(
        benchmark=rows[0].benchmark,
        accelerators=rows[0].accelerator_count,
        minutes=min(row.minutes for row in rows),
        samples=float(np.mean([run.position for run in every])),
        unit=units.pop(),
        batch=float(np.median([run.batch for run in every])),
        run_spread=max(EXACT, float(np.median([_spread(runs) for runs in by_system if runs]))),
        runs=max(len(runs) for runs in by_system),
    )


def _runs(root: Path, row: Result) -> list[Learned]:
    found: Iterable[Learned | None] = (learned(mllog.read_log(path)) for path in sorted(root.glob(row.source)))
    return [run for run in found if run is not None]


def _spread(runs: Sequence[Learned]) -> float:
    """Sd / olympic mean of the runs; none of a single one."""
    minutes = np.array([run.minutes for run in runs])
    return float(minutes.std(ddof=1) / olympic_mean(minutes)) if minutes.size > 1 else 0.0
