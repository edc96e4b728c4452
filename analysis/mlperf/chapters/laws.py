"""Which laws do these series follow, with which parameters, and can these points tell?"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.laws import ComputeLaw, CriticalBatchLaw, LawFit
from analysis.laws.backtest import HoldoutError
from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.forecasts import LAWS, SHOWN, Trial, described, tried
from analysis.mlperf.reading.learning import series_of
from analysis.mlperf.series import Series
from analysis.mlperf.study import Study
from analysis.report.wording import NO_VALUE, format_number, format_share

FITS = (
    Column("workload", "workload"),
    Column("law", "law"),
    Column("parameters", "parameters with 95 %"),
    Column("aicc", "AICc"),
    Column("unidentified", "not identified"),
)
PARTS = (
    Column("workload", "workload"),
    Column("noise_batch", "B_noise, samples"),
    Column("noise_interval", "95 %"),
    Column("needs_more", "S / S_min"),
    Column("fixed", "t0 / c"),
    Column("fixed_interval", "95 %"),
    Column("residual", "rms residual", format_share),
)
BACK = (
    Column("law", "law"),
    Column("formula", "formula"),
    Column("parameters", "parameters"),
    Column("rms", "rms log error"),
    Column("median", "median |error|", format_share),
    Column("sizes", "sizes held back"),
    Column("series", "of series"),
)
RULE = (
    "Laws are fit to logarithms with positive parameters; intervals come from randomised refits. AICc compares laws of "
    "one series, and exists only where points outnumber parameters by three, so on most of these series it cannot "
    "choose; parts have none, for they are fit to samples and steps, not to times, and have priors. Laws are therefore "
    "also compared by leaving the largest sizes out, again and again, of what lies at or below "
    f"{SHOWN} accelerators, and only by sizes that every law can be asked for: one of three parameters needs three "
    "sizes first. A parameter is not identified where its 95 % span more than 1000 times."
)
STEPS = (
    f"The parts, fit to all sizes of a series: samples to target against the global batch ({CriticalBatchLaw.formula}; "
    f"McCandlish et al. 2018) and seconds of a step against the local batch ({ComputeLaw.formula}). The logs tell neither "
    "bytes nor links, so what a collective costs is inside t0. S / S_min: at the largest batch of the series; t0 / c: "
    "the local batch whose samples cost as much as all else of a step; rms residual: of steps."
)


def laws(study: Study) -> Chapter | None:
    """Parameters, criteria and backtests of each law; None without a series that has sizes enough."""
    found = tried(series_of(study))
    if not found.series:
        return None
    back = backtests(found)
    fits = pd.DataFrame([_fit(each, name, found.fits[name][each.benchmark]) for each in found.series for name in LAWS])
    tables = (
        Table("laws-backtests", f"Leave-largest-out at or below {SHOWN}", BACK, back),
        Table("laws-parts", "Parts of training, on all sizes", PARTS, pd.DataFrame(_parts(found.series))),
        Table("laws-fits", "Every law on what it may see of each series", FITS, fits, brief=False),
    )
    return Chapter("Laws of scaling", _finding(back), (RULE, STEPS), tuple(each for each in tables if len(each.data)))


def _finding(back: pd.DataFrame) -> str:
    if back.empty:
        return f"No series has sizes enough up to {SHOWN} accelerators for all laws to be judged by those held back."
    best, worst = back.iloc[0], back.iloc[-1]
    return (
        f"Up to {SHOWN} accelerators laws miss the sizes held back by {format_share(best['median'])} ({best.law}) to "
        f"{format_share(worst['median'])} ({worst.law}) at the median."
    )


def backtests(found: Trial) -> pd.DataFrame:
    """How far each law missed what it was not shown, least median first; only sizes that all laws were asked for."""
    misses = {law: _misses(found, law) for law in found.fits}
    common = set.intersection(*map(set, misses.values()))
    if not common:
        return pd.DataFrame()
    rows = [_backtest(law, [(key[0], each) for key, each in misses[law].items() if key in common]) for law in misses]
    return pd.DataFrame(rows).sort_values("median", kind="stable")


def _misses(found: Trial, law: str) -> dict[tuple[str, float, float], HoldoutError]:
    """By series, size, and how far it lay beyond what was shown, which tells the cut."""
    records = found.records[law].items()
    return {(name, m.workers, round(m.log_distance, 9)): m for name, record in records for m in record.holdout_errors}


def _backtest(name: str, misses: Sequence[tuple[str, HoldoutError]]) -> dict[str, object]:
    law = LAWS[name]
    errors = np.array([miss.log_error for _, miss in misses])
    return {
        "law": name,
        "formula": law.formula,
        "parameters": len(law.parameter_names),
        "rms": float(np.sqrt((errors**2).mean())),
        "median": float(np.median(np.abs(np.expm1(errors)))),
        "sizes": len(errors),
        "series": len({series for series, _ in misses}),
    }


def _fit(series: Series, name: str, fit: LawFit) -> dict[str, object]:
    told = [
        f"{parameter} = {format_number(value)} [{', '.join(map(format_number, fit.parameter_interval(parameter)))}]"
        for parameter, value in zip(fit.law.parameter_names, fit.parameters.tolist(), strict=True)
    ]
    return {
        "workload": series.name,
        "law": name,
        "fitted_to": fit.size_range[1],
        "parameters": "; ".join(told),
        "aicc": fit.aicc if comparable(fit) else None,
        "unidentified": ", ".join(fit.unidentified_parameters) or NO_VALUE,
    }


def comparable(fit: LawFit) -> bool:
    """Whether AICc compares it with classic laws: they have no priors, and are fit to times alone."""
    return fit.law.noise_terms == 1 and math.isfinite(fit.aicc)


def _parts(series: tuple[Series, ...]) -> list[dict[str, object]]:
    samples, step = described(series, CriticalBatchLaw()), described(series, ComputeLaw())
    return [_part(each, samples[each.benchmark], step[each.benchmark]) for each in series]


def _part(series: Series, samples: LawFit, step: LawFit) -> dict[str, object]:
    noise = samples.parameter_interval("B_noise")
    ratios = step.parameter_draws[:, 0] / step.parameter_draws[:, 1]
    fixed, each = step.parameters
    return {
        "workload": series.name,
        "noise_batch": float(samples.parameters[1]),
        "noise_interval": _span(*noise) if "B_noise" not in samples.unidentified_parameters else "not identified",
        "needs_more": float(1 + series.columns["batch"].max() / samples.parameters[1]),
        "fixed": float(fixed / each),
        "fixed_interval": _span(*np.percentile(ratios, [2.5, 97.5])),
        "residual": float(np.sqrt((step.log_residuals**2).mean())),
        "local_batches": ", ".join(f"{value:g}" for value in series.columns["local_batch"]),
    }


def _span(low: float, high: float) -> str:
    return f"{format_number(low)} to {format_number(high)}"
