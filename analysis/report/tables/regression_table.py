"""Table of a regression: start-up, training time and errors of every system, and whether differences exceed seed noise.

A system is a strategy with its swept values and number of workers. Trials that this host could not run have a row with
the reason.
"""

from dataclasses import dataclass

import numpy as np

from analysis.metrics.comparisons.seed_noise import SeedNoiseAnswer, SeedNoiseComparison, compare_with_seed_noise
from analysis.report.wording import NO_VALUE, TIMES_SIGN, format_interval, format_number
from analysis.results.summary import RunSummary, SkippedTrial
from analysis.results.trial_group import TrialGroup
from analysis.statistics.centre import olympic_mean
from analysis.statistics.intervals import confidence_interval, mean_interval

REGRESSION_METRICS = {"mae": "MAE", "mse": "MSE", "r2": "R²"}  # metric -> heading
VIRTUAL_TIME_TEXT = "not measured: virtual time"
NOT_RECORDED_TEXT = "not measured"


@dataclass(frozen=True)
class RegressionRow:
    """Row of the table: the texts of its cells."""

    name: str
    run_count: int
    startup: str
    training: str
    errors: tuple[str, ...]  # one per metric of REGRESSION_METRICS
    skip_reason: str = ""  # why the system did not run; the cells are then empty


@dataclass(frozen=True)
class RegressionTable:
    """Table of a regression, and the sentence on seed noise."""

    rows: tuple[RegressionRow, ...]
    seed_noise_sentence: str

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the columns of errors."""
        return tuple(REGRESSION_METRICS.values())


def make_regression_table(summary: RunSummary) -> RegressionTable | None:
    """Return the table of a run whose trials all end with MAE, MSE and R²; None for other runs."""
    groups = summary.trial_groups
    finals = [trial.final for group in groups for trial in group.trials]
    if not finals or not all(final.keys() >= REGRESSION_METRICS.keys() for final in finals):
        return None
    skipped_rows = dict.fromkeys(map(_make_skipped_row, summary.skipped))
    rows = (*(_make_row(group, summary.engine) for group in groups), *skipped_rows)
    return RegressionTable(rows, seed_noise_sentence(summary))


def seed_noise_sentence(summary: RunSummary) -> str:
    """Return a sentence on whether the differences of R² between systems exceed seed noise.

    Empty where training stops at a target, since all systems then end with about the same quality, and for a single
    system.
    """
    if summary.target or len(summary.trial_groups) <= 1:
        return ""
    return _describe_seed_noise(compare_with_seed_noise(summary.trial_groups, "r2"))


def _describe_seed_noise(comparison: SeedNoiseComparison) -> str:
    question = "the differences of R² between systems exceed seed noise"
    if comparison.largest is None:
        return f"Whether {question} is not measured: {comparison.reason}."
    difference = comparison.largest
    names = f"{difference.first.name} and {difference.second.name}"
    size, interval = format_number(abs(difference.mean)), difference.interval
    if difference.mean < 0:
        interval = -interval[1], -interval[0]
    facts = (
        f"the largest difference, between {names}, is {size}{format_interval(interval)}; seeds alone vary R² by "
        f"{format_number(comparison.noise)} (standard deviation)"
    )
    if comparison.answer == SeedNoiseAnswer.YES:
        return f"Yes, {question}: {facts}."
    if comparison.answer == SeedNoiseAnswer.NO:
        return f"No, {question.replace('exceed', 'do not exceed')}: {facts}."
    return f"Whether {question} is too close to call: {facts}."


def _make_row(group: TrialGroup, engine: str) -> RegressionRow:
    errors = tuple(
        _format_mean([trial.final[metric] for trial in group.trials], is_time=False) for metric in REGRESSION_METRICS
    )
    training_s = [trial.seconds for trial in group.trials if trial.seconds is not None]
    return RegressionRow(
        group.name,
        len(group.trials),
        _format_startup(group, engine),
        _format_mean(training_s, is_time=True),
        errors,
    )


def _format_startup(group: TrialGroup, engine: str) -> str:
    seconds = [trial.startup_s for trial in group.trials if trial.startup_s is not None]
    if not seconds:
        return VIRTUAL_TIME_TEXT if engine == "simulated" else NOT_RECORDED_TEXT
    return _format_mean(seconds, is_time=True)


def _format_mean(run_values: list[float], *, is_time: bool) -> str:
    """Return the mean of the runs with its 95 % interval; times have an olympic mean and an interval of log times."""
    values = np.array(run_values)
    if not values.size:
        return NO_VALUE
    if not is_time:
        return f"{format_number(float(values.mean()))}{format_interval(mean_interval(values))}"
    interval = confidence_interval(values) if (values > 0).all() else None
    return f"{format_number(float(olympic_mean(values)))}{format_interval(interval)}"


def _make_skipped_row(skipped: SkippedTrial) -> RegressionRow:
    condition = f" · {skipped.condition}" if skipped.condition else ""
    name = f"{skipped.strategy} {TIMES_SIGN}{skipped.workers}{condition}"
    return RegressionRow(name, 0, "", "", (), skip_reason=skipped.reason)
