"""Tables of the values that the figures of compared runs show: points of speedup curves, and losses."""

from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.comparison.curves import ComparedRun, ComparedSpeedupCurve, ComparedSpeedupPoint
from analysis.reading.run_table import TrialLogTables
from analysis.results.trial_result import TrialResult

MAX_LOSS_CURVE_POINTS = 400  # points are dropped from longer curves, because a page has no more pixels


def make_curve_table(compared_curves: Sequence[ComparedSpeedupCurve]) -> pd.DataFrame:
    """Return the points of speedup curves as a table.

    The table has one row per curve and number of workers.
    """
    return pd.DataFrame([dict(_curve_table_row(curve, point)) for curve in compared_curves for point in curve.points])


def _curve_table_row(curve: ComparedSpeedupCurve, point: ComparedSpeedupPoint) -> Iterator[tuple[str, object]]:
    yield from (("line", curve.name), ("base", curve.base_description), ("of", curve.time_description))
    yield from (("workers", point.workers), ("relative", point.relative_workers), ("speedup", point.factors.speedup))
    yield from zip(("ci_low", "ci_high"), point.speedup_ci or (None, None), strict=True)
    yield from (("efficiency", point.factors.efficiency), ("hardware_efficiency", point.factors.hardware))
    yield from (("statistical_efficiency", point.factors.statistical), ("seconds", point.seconds), ("runs", point.runs))


def loss_curve_tables(run: ComparedRun) -> Iterator[pd.DataFrame]:
    """Yield one loss curve for each strategy and combination of swept values of a run.

    Each curve shows the first repeat on the most workers.
    """
    first_repeats = [result for result in run.summary.trials if result.is_finished and result.repeat == 0]
    largest: dict[tuple[str, str], TrialResult] = {}
    for result in first_repeats:
        key = (result.strategy, result.condition)
        largest[key] = max(largest.get(key, result), result, key=lambda candidate: candidate.workers)
    result_by_id = {result.id: result for result in largest.values()}
    for trial in run.table.trials:
        if trial.plan.trial in result_by_id:
            yield from _loss_curve_table(run, trial, result_by_id[trial.plan.trial])


def _loss_curve_table(run: ComparedRun, trial: TrialLogTables, result: TrialResult) -> Iterator[pd.DataFrame]:
    """Yield the loss curve of one trial as a table.

    A long curve is thinned.

    Yield nothing if the trial logged no loss.
    """
    evaluations = trial.evals[trial.evals["metric"] == "loss"]
    if evaluations.empty:
        return
    thinned = evaluations.iloc[:: max(1, len(evaluations) // MAX_LOSS_CURVE_POINTS)]
    condition_suffix = f", {result.condition}" if result.condition else ""
    yield pd.DataFrame(
        {
            "run": run.letter,
            "name": f"{run.letter} {result.strategy} on {result.workers}{condition_suffix}",
            "strategy": f"{result.strategy} ({result.condition})" if result.condition else result.strategy,
            "time_s": thinned["time_s"].astype(float),
            "loss": thinned["value"].astype(float),
        }
    )
