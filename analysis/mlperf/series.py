"""Scaling series: times, samples to target and batches of a workload on increasing numbers of accelerators.

Origin of the data: `data/series.md` for series of whole rounds, `data/h100_series_v4.1.md` for the appendix.
"""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from analysis.laws import SeriesColumns
from analysis.laws.training_time import add_local_batch_and_step_s_columns
from analysis.mlperf.reading.results import NonEmptyText, PositiveCount, PositiveNumber
from analysis.mlperf.references import MIXED_SUBMITTER_AND_SOFTWARE
from analysis.mlperf.study import WORKLOAD_NAMES, MlperfStudy
from analysis.statistics.centre import Floats, olympic_mean
from analysis.statistics.efficiency import ScalingEfficiency, compute_efficiency
from analysis.statistics.intervals import DRAWS, MAX_LOG_NOISE, Interval, percentile_interval
from services.schema.component import FrozenRecord

DATA_FOLDER = Path(__file__).resolve().parent / "data"
SHIPPED_SERIES_PATH = DATA_FOLDER / "series_v4.1.csv"  # from all logs of round v4.1, whose results ship
APPENDIX_SERIES_PATH = DATA_FOLDER / "h100_series_v4.1.csv"  # v4.1 without some of its systems
V5_0_SERIES_PATH = DATA_FOLDER / "series_v5.0.csv"  # not used when the laws were written
DEFAULT_ACCELERATOR = "H100 SXM"
SECONDS_PER_MINUTE = 60  # seconds


class ScalingPoint(FrozenRecord):
    """Measurements at one number of accelerators in a scaling series.

    The fields are columns of its CSV file.
    """

    benchmark: NonEmptyText
    accelerators: PositiveCount
    minutes: PositiveNumber
    samples: PositiveNumber  # samples to the target, in `unit`
    unit: NonEmptyText
    batch: PositiveNumber  # global batch, in samples
    run_spread: PositiveNumber  # standard deviation / olympic mean of one system's run times
    runs: PositiveCount


class ScalingSeriesCsvRow(ScalingPoint):
    """Row of a CSV file of scaling series."""

    accelerator: NonEmptyText = DEFAULT_ACCELERATOR  # the appendix has no such column
    scope: NonEmptyText = MIXED_SUBMITTER_AND_SOFTWARE  # submitter and software of the fastest systems of all sizes


@dataclass(frozen=True, eq=False)  # compared by identity: fits are cached per series object
class ScalingSeries:
    """Results of one workload on one kind of accelerator, by increasing number of accelerators."""

    points: tuple[ScalingPoint, ...]
    accelerator: str = DEFAULT_ACCELERATOR
    submitter_and_software: str = MIXED_SUBMITTER_AND_SOFTWARE  # of the fastest systems of all sizes

    @property
    def benchmark(self) -> str:
        """Name of the workload's folder, for example "ssd"."""
        return self.points[0].benchmark

    @property
    def name(self) -> str:
        """Name of the workload in tables and figures, for example "RetinaNet"."""
        return WORKLOAD_NAMES.get(self.benchmark, self.benchmark)

    @property
    def is_mixed(self) -> bool:
        """Whether the fastest systems of the sizes have several submitters or software stacks."""
        return self.submitter_and_software == MIXED_SUBMITTER_AND_SOFTWARE

    @property
    def accelerator_counts(self) -> list[int]:
        """Number of accelerators of each system in the series, in increasing order."""
        return [size.accelerators for size in self.points]

    @property
    def scaling_law_fit_data(self) -> SeriesColumns:
        """Data columns that scaling laws are fitted to.

        These are the columns of the series, the local batch, and the seconds of a step. If samples are counted in
        epochs, the seconds of a step are those of as many epochs as the batch has samples.
        """
        field_by_column = {"workers": "accelerators", "seconds": "minutes", "samples": "samples", "batch": "batch"}
        columns = {
            column: np.array([getattr(size, field) for size in self.points], dtype=float)
            for column, field in field_by_column.items()
        }
        return add_local_batch_and_step_s_columns(columns | {"seconds": SECONDS_PER_MINUTE * columns["seconds"]})

    def compute_efficiencies(self) -> tuple[ScalingEfficiency, ...]:
        """Return speedup, efficiency and the factors of efficiency for each number of accelerators.

        All are relative to the smallest number of accelerators.
        """
        base = self.points[0]
        return tuple(
            compute_efficiency(
                each.accelerators / base.accelerators, base.minutes / each.minutes, base.samples / each.samples
            )
            for each in self.points
        )

    def bootstrap_minutes(self, seed: int = 0) -> Floats:
        """Return the minutes of simulated repeats, for confidence intervals.

        This is a parametric bootstrap. The array has shape (draws, sizes). A series does not contain the times of
        single runs. The simulated time of a size, base included, is the olympic mean of `runs` log-normal times, whose
        relative spread is drawn around `run_spread`: with few runs, the spread itself is uncertain. The minutes of a
        size with a single run are NaN.
        """
        generator, most = np.random.default_rng(seed), max(size.runs for size in self.points)
        noise = generator.standard_normal((DRAWS, len(self.points), most))
        log_times = [
            _draw_run_spreads(size, generator)[:, None] * noise[:, index, : size.runs]
            for index, size in enumerate(self.points)
        ]
        means = [olympic_mean(np.exp(np.clip(logs, -MAX_LOG_NOISE, MAX_LOG_NOISE))) for logs in log_times]
        return np.asarray(np.stack(means, axis=1) * [size.minutes for size in self.points])

    def bootstrap_speedups(self, seed: int = 0) -> Floats:
        """Return the speedups of simulated repeats, shape (draws, sizes).

        They are NaN for a size with a single run, and for all sizes if the base has a single run.
        """
        minutes = self.bootstrap_minutes(seed)
        return np.asarray(minutes[:, :1] / minutes)

    def minutes_intervals(self) -> tuple[Interval | None, ...]:
        """Return the 95 % interval of the minutes at each size; None for a size with a single run."""
        return _intervals_of_columns(self.bootstrap_minutes())

    def speedup_intervals(self) -> tuple[Interval | None, ...]:
        """Return the 95 % interval of the speedup at each size; None where a size or the base has a single run."""
        return _intervals_of_columns(self.bootstrap_speedups())


def _intervals_of_columns(draws: Floats) -> tuple[Interval | None, ...]:
    """Return the 95 % interval of each column of draws; None for a column that is not finite."""
    return tuple(percentile_interval(column) if np.isfinite(column).all() else None for column in draws.T)


def _draw_run_spreads(size: ScalingPoint, generator: np.random.Generator) -> Floats:
    """Return `DRAWS` possible true spreads, given the measured spread of few runs (chi-square distribution).

    They are NaN for a single run.
    """
    if size.runs == 1:
        return np.full(DRAWS, np.nan)
    degrees_of_freedom = size.runs - 1
    return np.asarray(size.run_spread * np.sqrt(degrees_of_freedom / generator.chisquare(degrees_of_freedom, DRAWS)))


def describe_submitters_and_software(all_scaling_series: Collection[ScalingSeries]) -> str:
    """Return a sentence that names the series of one submitter and software, and the mixed ones."""
    own = [f"{series.name} ({series.submitter_and_software})" for series in all_scaling_series if not series.is_mixed]
    mixed = [series.name for series in all_scaling_series if series.is_mixed]
    parts = (
        f"one submitter and software: {', '.join(own)}" if own else "",
        f"mixed submitters or software: {', '.join(mixed)}" if mixed else "",
    )
    return f"Fastest systems of the sizes of a series have {'; '.join(filter(None, parts))}."


def shipped_scaling_series(mlperf_study: MlperfStudy) -> tuple[ScalingSeries, ...]:
    """Return the shipped scaling series if a study is about the results shipped with Ensayo.

    For other results, the tuple is empty.
    """
    return read_shipped_series() if mlperf_study.results.is_shipped_with_ensayo else ()


def read_shipped_series() -> tuple[ScalingSeries, ...]:
    """Return the scaling series of MLPerf Training v4.1 that ship with Ensayo."""
    return read_series_csv(SHIPPED_SERIES_PATH)


@cache
def read_series_csv(csv_path: Path) -> tuple[ScalingSeries, ...]:
    """Read scaling series from a CSV file, one series per workload.

    A scaling series contains training times by number of accelerators.
    """
    with csv_path.open(encoding="utf-8", newline="") as file:
        rows = [ScalingSeriesCsvRow.model_validate(row) for row in csv.DictReader(file)]
    names = dict.fromkeys(row.benchmark for row in rows)
    return tuple(_make_scaling_series([row for row in rows if row.benchmark == name]) for name in names)


def _make_scaling_series(csv_rows: Sequence[ScalingSeriesCsvRow]) -> ScalingSeries:
    return ScalingSeries(tuple(csv_rows), csv_rows[0].accelerator, csv_rows[0].scope)
