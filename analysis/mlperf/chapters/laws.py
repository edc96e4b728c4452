"""Chapter on scaling laws: fitted parameters, information criteria and backtests of each law."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.laws import CriticalBatchLaw, LawFit, StepTimeLaw
from analysis.laws.backtest import HoldoutError
from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.forecasts import (
    LAWS,
    MAX_FITTED_ACCELERATORS,
    LawEvaluation,
    evaluate_laws,
    fit_law_to_each_series,
)
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.series import ScalingSeries, describe_submitters_and_software
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import NO_VALUE, format_number, format_percentage

FIT_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("law", "law"),
    TableColumn("parameters", "parameters with 95 %"),
    TableColumn("aicc", "AICc"),
    TableColumn("unidentified", "not identified"),
)
PARTS_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("noise_batch", "B_noise, samples"),
    TableColumn("noise_interval", "95 %"),
    TableColumn("needs_more", "S / S_min"),
    TableColumn("fixed", "t0 / c"),
    TableColumn("fixed_interval", "95 %"),
    TableColumn("residual", "rms residual", format_percentage),
)
BACKTEST_COLUMNS = (
    TableColumn("law", "law"),
    TableColumn("formula", "formula"),
    TableColumn("parameters", "parameters"),
    TableColumn("rms", "rms log error"),
    TableColumn("median", "median |error|", format_percentage),
    TableColumn("sizes", "sizes held back"),
    TableColumn("series", "of series"),
)
RULE_TEXT = (
    "Laws are fitted to logarithms with positive parameters; intervals come from randomised refits. AICc compares laws "
    "of one series and needs at least three points more than parameters, so on most of these series it cannot choose. "
    "The laws of parts have no AICc: they are fitted to samples and steps, not to times, and have priors. Laws are "
    "therefore also compared by backtests: of the sizes at or below "
    f"{MAX_FITTED_ACCELERATORS} accelerators the largest are held back, one more each time, and predicted from "
    "the smaller ones. Only sizes that every law can predict count: a law of three parameters needs three sizes first. "
    "A parameter is not identified where its 95 % interval spans a factor of more than 1000."
)
PARTS_TEXT = (
    "The two parts are fitted to all sizes of a series: samples to target against the global batch "
    f"({CriticalBatchLaw.formula}; McCandlish et al. 2018), and seconds of a step against the local batch "
    f"({StepTimeLaw.formula}). The logs contain neither bytes nor links, so t0 includes the cost of collectives. "
    "S / S_min: at the largest batch of the series; t0 / c: the local batch whose compute time equals the fixed time "
    "of a step; rms residual: of the step times."
)


def scaling_laws_chapter(mlperf_study: MlperfStudy) -> Chapter | None:
    """Return the report chapter on the fitted scaling laws.

    The chapter shows parameters, AICc (information criterion) and backtests of each law. Return None if no series has
    enough system sizes.
    """
    evaluation = evaluate_laws(find_scaling_series(mlperf_study))
    if not evaluation.series:
        return None
    backtests = make_holdout_error_table(evaluation)
    parts = pd.DataFrame(_sample_count_and_time_rows(evaluation.series))
    rows = [
        _law_fit_row(each, name, evaluation.fits[name][each.benchmark]) for each in evaluation.series for name in LAWS
    ]
    backtests_title = f"Leave-largest-out at or below {MAX_FITTED_ACCELERATORS}"
    fits_title, fits = "Every law fitted to the small sizes of each series", pd.DataFrame(rows)
    tables = (
        ChapterTable("laws-backtests", backtests_title, BACKTEST_COLUMNS, backtests),
        ChapterTable("laws-parts", "Parts of training, on all sizes", PARTS_COLUMNS, parts),
        ChapterTable("laws-fits", fits_title, FIT_COLUMNS, fits, is_short=False),
    )
    filled_tables = tuple(each for each in tables if len(each.data))
    texts = (RULE_TEXT, PARTS_TEXT, describe_submitters_and_software(evaluation.series))
    return Chapter("Scaling laws", _describe_backtest_errors(backtests), texts, filled_tables)


def _describe_backtest_errors(backtest_table: pd.DataFrame) -> str:
    if backtest_table.empty:
        return (
            f"No series has enough sizes up to {MAX_FITTED_ACCELERATORS} accelerators to judge all laws by sizes that "
            "are held back."
        )
    best, worst = backtest_table.iloc[0], backtest_table.iloc[-1]
    return (
        f"Up to {MAX_FITTED_ACCELERATORS} accelerators, laws miss the held-back sizes by "
        f"{format_percentage(best['median'])} ({best.law}) to {format_percentage(worst['median'])} ({worst.law}) "
        "at the median."
    )


def make_holdout_error_table(law_evaluation: LawEvaluation) -> pd.DataFrame:
    """Return a table of the prediction errors of each scaling law, sorted by median error.

    Errors are at system sizes that were not used in the fit of the law. Only sizes that all laws predicted are
    included.
    """
    misses = {law: _find_holdout_errors(law_evaluation, law) for law in law_evaluation.fits}
    common = set.intersection(*map(set, misses.values()))
    if not common:
        return pd.DataFrame()
    rows = [_error_row(law, [(key[0], each) for key, each in misses[law].items() if key in common]) for law in misses]
    return pd.DataFrame(rows).sort_values("median", kind="stable")


def _find_holdout_errors(evaluation: LawEvaluation, law_name: str) -> dict[tuple[str, float, float], HoldoutError]:
    """Return a scaling law's prediction errors at numbers of workers outside of the fit.

    The keys are the series, the number of workers, and the logarithmic distance of this number to the fit.
    """
    records = evaluation.backtests[law_name].items()
    return {(name, m.workers, round(m.log_distance, 9)): m for name, record in records for m in record.holdout_errors}


def _error_row(law_name: str, holdout_errors: Sequence[tuple[str, HoldoutError]]) -> dict[str, object]:
    law = LAWS[law_name]
    errors = np.array([miss.log_error for _, miss in holdout_errors])
    return {
        "law": law_name,
        "formula": law.formula,
        "parameters": len(law.parameter_names),
        "rms": float(np.sqrt((errors**2).mean())),
        "median": float(np.median(np.abs(np.expm1(errors)))),
        "sizes": len(errors),
        "series": len({series for series, _ in holdout_errors}),
    }


def _law_fit_row(scaling_series: ScalingSeries, law_name: str, law_fit: LawFit) -> dict[str, object]:
    parameters = [
        f"{parameter} = {format_number(value)} [{', '.join(map(format_number, law_fit.parameter_interval(parameter)))}]"
        for parameter, value in zip(law_fit.law.parameter_names, law_fit.parameters.tolist(), strict=True)
    ]
    return {
        "workload": scaling_series.name,
        "law": law_name,
        "fitted_to": law_fit.size_range[1],
        "parameters": "; ".join(parameters),
        "aicc": law_fit.akaike_criterion if is_aicc_comparable(law_fit) else None,
        "unidentified": ", ".join(law_fit.unidentified_parameters) or NO_VALUE,
    }


def is_aicc_comparable(law_fit: LawFit) -> bool:
    """Return whether the AICc of a fit is comparable with the AICc of fits to training times only.

    AICc is an information criterion.
    """
    return law_fit.law.noise_terms == 1 and math.isfinite(law_fit.akaike_criterion)


def _sample_count_and_time_rows(series: tuple[ScalingSeries, ...]) -> list[dict[str, object]]:
    samples, step = fit_law_to_each_series(series, CriticalBatchLaw()), fit_law_to_each_series(series, StepTimeLaw())
    return [_fitted_laws_row(each, samples[each.benchmark], step[each.benchmark]) for each in series]


def _fitted_laws_row(series: ScalingSeries, sample_count_fit: LawFit, step_time_fit: LawFit) -> dict[str, object]:
    noise = sample_count_fit.parameter_interval("B_noise")
    ratios = step_time_fit.parameter_draws[:, 0] / step_time_fit.parameter_draws[:, 1]
    fixed_s, sample_s = step_time_fit.parameters
    return {
        "workload": series.name,
        "noise_batch": float(sample_count_fit.parameters[1]),
        "noise_interval": _format_interval(*noise)
        if "B_noise" not in sample_count_fit.unidentified_parameters
        else "not identified",
        "needs_more": float(1 + series.scaling_law_fit_data["batch"].max() / sample_count_fit.parameters[1]),
        "fixed": float(fixed_s / sample_s),
        "fixed_interval": _format_interval(*np.percentile(ratios, [2.5, 97.5])),
        "residual": float(np.sqrt((step_time_fit.log_residuals**2).mean())),
        "local_batches": ", ".join(f"{value:g}" for value in series.scaling_law_fit_data["local_batch"]),
    }


def _format_interval(low: float, high: float) -> str:
    return f"{format_number(low)} to {format_number(high)}"
