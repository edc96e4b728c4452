"""How does one workload scale on one kind of accelerator, and how much did it have to learn from?

`data/series.md` says where the series of whole rounds come from, `data/h100_series_v4.1.md` whence the appendix.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from analysis.laws import SeriesColumns
from analysis.laws.parts import add_step_columns
from analysis.mlperf.reading.results import Count, Positive, Text
from analysis.mlperf.study import NAMES, Study
from analysis.statistics.bootstrap import BOOTSTRAP_DRAWS
from analysis.statistics.centre import Floats, olympic_mean
from analysis.statistics.efficiency import EfficiencyFactors, split_efficiency
from services.schema.component import FrozenRecord

DATA = Path(__file__).resolve().parent / "data"
SHIPPED = DATA / "series_v4.1.csv"  # from all logs of the round whose results ship
APPENDIX = DATA / "h100_series_v4.1.csv"  # the same round with some systems missing
NEXT_ROUND = DATA / "series_v5.0.csv"  # nobody had seen it through these laws when they were written
ACCELERATOR = "H100 SXM"
MINUTE = 60  # seconds


class Size(FrozenRecord):
    """One number of accelerators; fields are the columns of the CSV."""

    benchmark: Text
    accelerators: Count
    minutes: Positive
    samples: Positive  # to the target, in `unit`
    unit: Text
    batch: Positive  # global, in samples
    run_spread: Positive  # sd / olympic mean of one system's runs
    runs: Count


class Row(Size):
    """A line of a CSV of series."""

    accelerator: Text = ACCELERATOR  # the appendix has one kind, and no column for it


@dataclass(frozen=True, eq=False)  # one object per series: what is fit to it is kept by identity
class Series:
    """One workload on one kind of accelerator, small sizes first."""

    sizes: tuple[Size, ...]
    accelerator: str = ACCELERATOR

    @property
    def benchmark(self) -> str:
        """The workload's folder."""
        return self.sizes[0].benchmark

    @property
    def name(self) -> str:
        """For people."""
        return NAMES.get(self.benchmark, self.benchmark)

    @property
    def counts(self) -> list[int]:
        """Numbers of accelerators."""
        return [size.accelerators for size in self.sizes]

    @property
    def columns(self) -> SeriesColumns:
        """As laws read them, with local batches and seconds of a step.

        Where samples are counted in epochs, a step's seconds are those of as many epochs as the batch has samples.
        """
        kept = {"workers": "accelerators", "seconds": "minutes", "samples": "samples", "batch": "batch"}
        told = {name: np.array([getattr(size, kept[name]) for size in self.sizes], dtype=float) for name in kept}
        return add_step_columns(told | {"seconds": MINUTE * told["seconds"]})

    def factors(self) -> tuple[EfficiencyFactors, ...]:
        """Each size against the smallest."""
        base = self.sizes[0]
        return tuple(
            split_efficiency(
                each.accelerators / base.accelerators, base.minutes / each.minutes, base.samples / each.samples
            )
            for each in self.sizes
        )

    def speedup_draws(self) -> Floats:
        """Speedups of runs as spread as those of each size are, shape (DRAWS, sizes).

        The runs themselves are not in the series, so this bootstrap is parametric: olympic means of `runs` log-normal
        times, of the base as well.
        """
        most = max(size.runs for size in self.sizes)
        noise = np.random.default_rng(0).standard_normal((BOOTSTRAP_DRAWS, len(self.sizes), most))
        means = [
            olympic_mean(np.exp(size.run_spread * noise[:, place, : size.runs]))
            for place, size in enumerate(self.sizes)
        ]
        seconds = np.stack(means, axis=1) * self.columns["seconds"]
        draws = seconds[:, :1] / seconds
        return np.asarray(draws)


def shipped_with(study: Study) -> tuple[Series, ...]:
    """The series that ship, where these are the results that ship; none of other results."""
    return shipped() if study.results.shipped else ()


def shipped() -> tuple[Series, ...]:
    """The series of the round whose results ship."""
    return series_from(SHIPPED)


@cache
def series_from(path: Path) -> tuple[Series, ...]:
    """All series of a CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [Row.model_validate(row) for row in csv.DictReader(file)]
    names = dict.fromkeys(row.benchmark for row in rows)
    return tuple(_of([row for row in rows if row.benchmark == name]) for name in names)


def _of(rows: Sequence[Row]) -> Series:
    return Series(tuple(rows), rows[0].accelerator)
