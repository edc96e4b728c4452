"""One way to scale, whoever did it: sizes against a base, so that runs and public results can stand on one axis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from analysis.metrics.speedup import SpeedupCurve, SpeedupPoint
from analysis.mlperf.series import Series, shipped
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunTable
from analysis.results.examine import analyse_run
from analysis.results.summary import RunSummary
from analysis.statistics.bootstrap import Interval, percentile_interval
from analysis.statistics.efficiency import EfficiencyFactors
from services.schema.errors import UserError


@dataclass(frozen=True)
class Compared:
    """One of the runs that are laid over each other."""

    letter: str  # A, B, … Z, AA in the order in which they were named
    table: RunTable
    summary: RunSummary


@dataclass(frozen=True)
class Size:
    """One size of a line."""

    workers: int
    relative: float  # workers / those of the base
    factors: EfficiencyFactors
    speedup_ci: Interval | None
    seconds: float
    seconds_ci: Interval | None
    runs: int | None  # None: not told


@dataclass(frozen=True)
class Line:
    """A strategy of a run under one condition, or a published series."""

    name: str
    strategy: str  # with its condition, the same in every run; of a public series its name
    source: str  # of a run its letter; empty for public results
    base: str  # the base case with its absolute time
    of: str  # what times are: to the target, for the common samples
    sizes: tuple[Size, ...]

    @property
    def public(self) -> bool:
        """Whether it is made of public results, whose times are of another world than ours."""
        return not self.source


def read(folders: Sequence[Path]) -> list[Compared]:
    """The runs, from their logs.

    Raises:
        UserError: a folder is not a run's.
    """
    return [Compared(letter(place), *analyse_run(RunFolder(folder))) for place, folder in enumerate(folders)]


def letter(place: int) -> str:
    """Names of runs as spreadsheets name columns: from A to Z, then AA, AB and so on."""
    before, last = divmod(place, len(ascii_uppercase))
    return (letter(before - 1) if before else "") + ascii_uppercase[last]


def lines(runs: Iterable[Compared], series: Iterable[Series] = ()) -> list[Line]:
    """Every curve of two sizes or more, then the series."""
    own = [_own(run, curve) for run in runs for curve in run.summary.curves if len(curve.points) > 1]
    return [*own, *map(_public, series)]


def published(names: Iterable[str]) -> list[Series]:
    """The shipped series by the names of their benchmarks.

    Raises:
        UserError: none is called so; the message lists those that ship.
    """
    known = {each.benchmark: each for each in shipped()}
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"--mlperf {unknown[0]}: no such series; there are {', '.join(known)}")
    return [known[name] for name in names]


def _own(run: Compared, curve: SpeedupCurve) -> Line:
    base = f"{curve.base.strategy} on {curve.base.workers}, {curve.base.seconds:.3g} s"
    of = "time to target" if curve.of == "time_to_target" else "time for the same samples"
    sizes = tuple(_size(point, curve.base.workers) for point in curve.points)
    return Line(f"{run.letter} {curve.description}", curve.description, run.letter, base, of, sizes)


def _size(point: SpeedupPoint, base: int) -> Size:
    found = EfficiencyFactors(point.speedup, point.efficiency, point.hardware_efficiency, point.statistical_efficiency)
    return Size(
        point.workers, point.workers / base, found, point.speedup_ci, point.seconds, point.seconds_ci, point.runs
    )


def _public(series: Series) -> Line:
    first, draws = series.sizes[0], series.speedup_draws()
    sizes = tuple(
        Size(
            workers=size.accelerators,
            relative=size.accelerators / first.accelerators,
            factors=found,
            speedup_ci=percentile_interval(draws[:, place]),
            seconds=60 * size.minutes,
            seconds_ci=None,
            runs=size.runs,
        )
        for place, (size, found) in enumerate(zip(series.sizes, series.factors(), strict=True))
    )
    base = f"{first.accelerators} accelerators, {first.minutes:.3g} min"
    return Line(f"public: {series.name}", series.name, "", base, "time to target", sizes)
