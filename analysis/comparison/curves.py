"""Speedup curves of runs and of published MLPerf results, in a common format for figures.

A curve has one point per size (number of workers or accelerators), with the speedup over the smallest size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from analysis.metrics.speedup import SpeedupCurve, SpeedupPoint
from analysis.mlperf.series import ScalingSeries, read_shipped_series
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables
from analysis.results.analyse_run import analyse_run
from analysis.results.summary import RunSummary
from analysis.statistics.efficiency import ScalingEfficiency
from analysis.statistics.intervals import Interval
from services.schema.errors import UserError


@dataclass(frozen=True)
class ComparedRun:
    """Run to compare with other runs, with the letter that names the run in figures and tables."""

    letter: str  # A, B, … Z, AA in the order of the command line
    table: RunLogTables
    summary: RunSummary


@dataclass(frozen=True)
class ComparedSpeedupPoint:
    """Point of a speedup curve: time and speedup at one number of workers or accelerators."""

    workers: int
    relative_workers: float  # workers / workers of the base
    factors: ScalingEfficiency  # speedup and efficiency
    speedup_ci: Interval | None
    seconds: float
    seconds_ci: Interval | None
    runs: int | None  # None: not recorded


@dataclass(frozen=True)
class ComparedSpeedupCurve:
    """Speedup curve of a strategy in one of the compared runs, or of published MLPerf results."""

    name: str
    strategy: str  # with its condition, the same in every run; for a published series its name
    run_letter: str  # empty for a published series
    base_description: str  # base size with its absolute time
    time_description: str  # "time to target" or "time for the same samples"
    points: tuple[ComparedSpeedupPoint, ...]

    @property
    def is_from_mlperf(self) -> bool:
        """Whether the curve shows published MLPerf results.

        The times of published results are not comparable with times of runs.
        """
        return not self.run_letter


def read_runs(paths: Sequence[Path]) -> list[ComparedRun]:
    """Read and analyse the logs of several runs.

    Raises:
        UserError: one of `paths` is not the folder of a run.
    """
    return [ComparedRun(run_letter_of_index(index), *analyse_run(RunFolder(path))) for index, path in enumerate(paths)]


def run_letter_of_index(run_index: int) -> str:
    """Return the letter that names a run in figures, given the index of the run.

    Letters are A to Z, then AA, AB and so on, like the columns of a spreadsheet.
    """
    quotient, remainder = divmod(run_index, len(ascii_uppercase))
    return (run_letter_of_index(quotient - 1) if quotient else "") + ascii_uppercase[remainder]


def collect_speedup_curves(
    runs: Iterable[ComparedRun], published_mlperf_series: Iterable[ScalingSeries] = ()
) -> list[ComparedSpeedupCurve]:
    """Return the speedup curves of all runs, followed by the curves of published MLPerf results.

    Curves of runs with a single number of workers are left out.
    """
    run_curves = [
        _make_compared_run_curve(run, curve) for run in runs for curve in run.summary.curves if len(curve.points) > 1
    ]
    return [*run_curves, *map(_curve_of_mlperf_series, published_mlperf_series)]


def mlperf_scaling_series(benchmark_names: Iterable[str]) -> list[ScalingSeries]:
    """Return the published MLPerf results of the named benchmarks, from the data that ship with Ensayo.

    Raises:
        UserError: a benchmark has no series. The message lists the allowed names.
    """
    shipped_series = {series.benchmark: series for series in read_shipped_series()}
    unknown_names = [name for name in benchmark_names if name not in shipped_series]
    if unknown_names:
        raise UserError(f"--mlperf {unknown_names[0]}: no such series; allowed are {', '.join(shipped_series)}")
    return [shipped_series[name] for name in benchmark_names]


def _make_compared_run_curve(compared_run: ComparedRun, speedup_curve: SpeedupCurve) -> ComparedSpeedupCurve:
    base = f"{speedup_curve.base.strategy} on {speedup_curve.base.workers}, {speedup_curve.base.seconds:.3g} s"
    time_description = "time to target" if speedup_curve.of == "time_to_target" else "time for the same samples"
    points = tuple(_make_compared_point(point, speedup_curve.base.workers) for point in speedup_curve.points)
    name = f"{compared_run.letter} {speedup_curve.description}"
    return ComparedSpeedupCurve(name, speedup_curve.description, compared_run.letter, base, time_description, points)


def _make_compared_point(point: SpeedupPoint, base_worker_count: int) -> ComparedSpeedupPoint:
    efficiencies = (point.efficiency, point.hardware_efficiency, point.statistical_efficiency)
    factors = ScalingEfficiency(point.speedup, *efficiencies)
    sizes = (point.workers, point.workers / base_worker_count)
    return ComparedSpeedupPoint(*sizes, factors, point.speedup_ci, point.seconds, point.seconds_ci, point.runs)


def _curve_of_mlperf_series(series: ScalingSeries) -> ComparedSpeedupCurve:
    first, intervals = series.points[0], series.speedup_intervals()
    points = tuple(
        ComparedSpeedupPoint(
            workers=size.accelerators,
            relative_workers=size.accelerators / first.accelerators,
            factors=factors,
            speedup_ci=intervals[index],
            seconds=60 * size.minutes,
            seconds_ci=None,
            runs=size.runs,
        )
        for index, (size, factors) in enumerate(zip(series.points, series.compute_efficiencies(), strict=True))
    )
    base = f"{first.accelerators} accelerators, {first.minutes:.3g} min"
    return ComparedSpeedupCurve(f"public: {series.name}", series.name, "", base, "time to target", points)
