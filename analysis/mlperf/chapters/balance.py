"""How many accelerators are worth their cost? By three rules, each with its interval."""

import numpy as np
import pandas as pd

from analysis.laws import BestBatchLaw, LawFit
from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.forecasts import described
from analysis.mlperf.reading.learning import series_of
from analysis.mlperf.series import Series
from analysis.mlperf.study import Study
from analysis.report.wording import NO_VALUE, format_share
from analysis.statistics.balance import BALANCE_RULES, MIN_EFFICIENCY, TIME_EXPONENT, RuleChoice, choose_worker_counts

GRID = 49  # sizes between the smallest and the largest: steps of a fifth where one is a thousand times the other
COLUMNS = (
    Column("workload", "workload"),
    Column("rule", "rule"),
    Column("built_told", "among systems built"),
    Column("built_interval", "95 %"),
    Column("between_told", "between them, by the law"),
    Column("between_interval", "95 % by the law"),
)
RULE = (
    f"Three rules, because a balance point without its rule means nothing: the largest N up to which E' stays at or "
    f"above {MIN_EFFICIENCY:g}; the knee, farthest above the chord from first to last point on log axes; the least "
    f"T^{TIME_EXPONENT} N, where doubling N must buy more than 1/sqrt(2) of the time. Base: the smallest system of the "
    "series. Among systems that were built, intervals resample runs; few sizes exist, so they often hold one. Between "
    f"them, N is read from the law {BestBatchLaw.formula}, fit to all sizes of the series; its intervals are those of "
    "the fit, and hold what systems differ in. The knee depends on where the series ends; the other two do not, while "
    "they lie inside it. ≥: the rule would go on where the series ends; ≤: the best may be smaller than all of it."
)
STEPS = (
    "≈: the law is asked at {grid} sizes in equal ratios from the smallest to the largest, so its "
    "answers and their intervals are sizes of that grid, whose neighbours are up to {step} apart."
)
BEYOND, BELOW, ABOUT = "≥ ", "≤ ", "≈ "
_, KNEE, LOWEST = BALANCE_RULES


def balance(study: Study) -> Chapter | None:
    """Balance points of each series; None where there are none."""
    series = series_of(study)
    if not series:
        return None
    fits = described(series, BestBatchLaw())
    rows = pd.DataFrame([row for each in series for row in _rows(each, fits[each.benchmark])])
    rows = rows.astype({"built": "Int64", "between": "Int64"})  # whole numbers stay whole where a rule has no answer
    finding = (
        f"The balance point hangs on its rule: for one workload the largest is {_apart(rows, 'built')} times the "
        f"smallest among systems that were built, {_apart(rows, 'between')} times between them by the law."
    )
    steps = STEPS.format(grid=GRID, step=format_share(max(_step(each) for each in series)))
    table = Table("balance", "Balance points by rule", COLUMNS, rows)
    return Chapter("Balance points", finding, (RULE, steps), (table,))


def _apart(rows: pd.DataFrame, column: str) -> str:
    """How far the rules' answers are apart: of one workload one number, of several the range."""
    found = rows.dropna(subset=[column]).groupby("workload", sort=False)[column]
    ratios = (found.max() / found.min()).astype(float)
    low, high = _ratio(ratios.min()), _ratio(ratios.max())
    return low if low == high else f"{low} to {high}"


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004 -- two digits or more


def _step(series: Series) -> float:
    """Between neighbours of the grid, as a share."""
    return float((series.counts[-1] / series.counts[0]) ** (1 / (GRID - 1)) - 1)


def _rows(series: Series, fit: LawFit) -> list[dict[str, object]]:
    built = _by_rule(_built(series))
    between = _by_rule(_between(series, fit))
    return [
        {"benchmark": series.benchmark, "workload": series.name, "rule": rule}
        | _cells("built", built.get(rule))
        | _cells("between", between.get(rule))
        | {"built_told": _told(built.get(rule), series), "between_told": _told(between.get(rule), series, ABOUT)}
        for rule in BALANCE_RULES
    ]


def _built(series: Series) -> tuple[RuleChoice, ...]:
    speedup = np.array([each.speedup for each in series.factors()])
    return choose_worker_counts(series.counts, series.counts[0], speedup, series.speedup_draws())


def _between(series: Series, fit: LawFit) -> tuple[RuleChoice, ...]:
    first, last = series.counts[0], series.counts[-1]
    counts = np.unique(np.geomspace(first, last, GRID).round()).astype(int)
    at = {"workers": counts.astype(float)}
    told, draws = fit.law.predict(fit.parameters, at), fit.law.predict(fit.parameter_draws, at)
    return choose_worker_counts(counts.tolist(), first, told[0] / told, draws[:, :1] / draws)


def _told(pick: RuleChoice | None, series: Series, about: str = "") -> str:
    """The answer; at an end of the series it is a bound, except for the knee, which needs both sides."""
    if pick is None:
        return NO_VALUE
    first, last = series.counts[0], series.counts[-1]
    sign = "" if pick.workers in (first, last) else about
    if pick.workers == last and pick.rule != KNEE:
        sign = BEYOND
    if pick.workers == first and pick.rule == LOWEST:
        sign = BELOW
    return f"{sign}{pick.workers:,}"


def _by_rule(found: tuple[RuleChoice, ...]) -> dict[str, RuleChoice]:
    return {pick.rule: pick for pick in found}


def _cells(name: str, pick: RuleChoice | None) -> dict[str, object]:
    if pick is None:
        return {name: None, f"{name}_interval": NO_VALUE}
    return {name: pick.workers, f"{name}_interval": _span(*pick.interval) if pick.interval else NO_VALUE}


def _span(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if low != high else f"{low:,}"
