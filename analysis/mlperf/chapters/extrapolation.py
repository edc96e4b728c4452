"""Report chapter on the extrapolation of training times from small to large systems.

Times on 512 and more accelerators are predicted by scaling laws that are fitted to times on at most 64.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.laws.backtest import ForecastScore, LawForecast
from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.fan_chart import draw_forecast_fan_chart
from analysis.mlperf.forecasts import (
    BEST_BATCH,
    LAWS,
    MAX_FITTED_ACCELERATORS,
    MIN_SCORED_ACCELERATORS,
    OWN_LAWS,
    PARTS_CHOSEN_BATCH,
    PARTS_KNOWN_BATCH,
    LawEvaluation,
    evaluate_laws,
    predicts_large_from_small,
)
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.series import (
    APPENDIX_SERIES_PATH,
    SECONDS_PER_MINUTE,
    SHIPPED_SERIES_PATH,
    V5_0_SERIES_PATH,
    ScalingSeries,
    describe_submitters_and_software,
    read_series_csv,
    shipped_scaling_series,
)
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import format_number, format_percentage, format_signed_percentage

SCORE_COLUMNS = (
    TableColumn("law", "law"),
    TableColumn("points", "points"),
    TableColumn("median", "median |error|", format_percentage),
    TableColumn("worst", "worst", format_percentage),
    TableColumn("covered", "inside its 90 % band", format_percentage),
    TableColumn("width", "band, high/low"),
    TableColumn("rigid", "inside, without drift", format_percentage),
)
LAW_HEADINGS = {BEST_BATCH: "best batch", PARTS_KNOWN_BATCH: "parts, known", PARTS_CHOSEN_BATCH: "parts, chosen"}
OTHER_SERIES_LAWS = ("Amdahl", *OWN_LAWS)  # laws that are also evaluated on the other series
OTHER_SERIES_PATHS = {"v4.1, the appendix": APPENDIX_SERIES_PATH, "v5.0, not seen before": V5_0_SERIES_PATH}
POINT_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("workers", "N"),
    TableColumn("observed", "minutes"),
    *(TableColumn(f"{name} error", LAW_HEADINGS.get(name, name), format_signed_percentage) for name in LAWS),
    TableColumn("judged", "counts"),
)
OTHER_POINT_COLUMNS = (
    TableColumn("set", "series"),
    *POINT_COLUMNS[:3],
    *(
        TableColumn(f"{name} error", LAW_HEADINGS.get(name, name), format_signed_percentage)
        for name in OTHER_SERIES_LAWS
    ),
    *(TableColumn(name, f"{LAW_HEADINGS[name]}: minutes, 90 %") for name in OWN_LAWS),
)
OWN_BAND_COLUMNS = (
    *POINT_COLUMNS[:3],
    *(TableColumn(name, f"{LAW_HEADINGS[name]}: minutes, 90 %") for name in OWN_LAWS),
    TableColumn("fitted_to", "fitted up to"),
)
OWN_LAWS_TEXT = (
    "Three laws are our own. 'Best batch' uses times alone: it assumes that the best batch is chosen for each number "
    "of accelerators, and has as many parameters as Amdahl's law, two. 'Parts, batch known' also uses samples and "
    f"batches up to {MAX_FITTED_ACCELERATORS}, and the global batch of the predicted point: the user chooses that "
    "batch, so this is a conditional prediction. 'Parts, batch chosen' uses the best batch for its fitted parts. No "
    f"constant of these laws was fitted to a point beyond {MAX_FITTED_ACCELERATORS}; but their author had seen v4.1, "
    "so on v4.1 their form is no blind prediction."
)
BANDS_TEXT = (
    "A band includes the noise of a point, the uncertainty of the parameters and the law's drift, which is its error "
    "beyond the fitted sizes. Noise and drift come from the other workloads, of which only sizes at or below "
    f"{MAX_FITTED_ACCELERATORS} are used, for classic laws and our own alike. A wide band covers all points and means "
    "little: 'high/low' shows its width."
)
SCORES_NOTE = (
    f"Points: forecasts that count, which are those from at most {MAX_FITTED_ACCELERATORS} accelerators to "
    f"{MIN_SCORED_ACCELERATORS} and more. Inside its 90 % band: share of these points whose observed time lies in the "
    "band of the law. Band, high/low: upper end / lower end of the band, median over the points. Inside, without "
    "drift: the same share for bands without drift, the law's error beyond the fitted sizes."
)
POINTS_NOTE = "Counts: whether the point is one of those that the scores are computed from."
BAND_CHANGE_TEXT = (
    "The rule of the bands was changed after their coverage on v4.1 had been seen. The first rule took drift from a "
    "moment estimate, which gave 0; the last column shows the coverage of bands without drift. The rule now uses a "
    "posterior of the drift, which is never exactly 0. Coverage on v4.1 is therefore no test of the present rule."
)
MISSING_DATA_TEXT = (
    "A better prediction would need: the batch that will be used, and samples to target at two or more batches on "
    "small systems; the parallel layout, since a device with an eighth of a sample runs a different program than one "
    "with two; step times by phase with bytes and links, to separate costs that grow with N from fixed ones; and the "
    "same software on all sizes. On v4.1 LoRA trains on up to 64 accelerators with a batch of 8, so these sizes do not "
    "show what a larger batch costs, and R-GAT's step slows beyond 64 by more than its local batch predicts."
)


def extrapolation_chapter(mlperf_study: MlperfStudy) -> Chapter | None:
    """Return the report chapter on predicted training times of large systems.

    The systems are larger than those that scaling laws are fitted to. Return None without forecasts.
    """
    evaluation = evaluate_laws(find_scaling_series(mlperf_study))
    if not evaluation.large_system_forecasts:
        return None
    finding = _describe_forecast_errors({each.law: each for each in evaluation.forecast_scores_of_laws})
    points = pd.DataFrame([row for each in evaluation.series for row in _make_forecast_table_rows(each, evaluation)])
    ships = bool(shipped_scaling_series(mlperf_study))
    source = SHIPPED_SERIES_PATH.name if ships else mlperf_study.results.source_name
    return Chapter(
        "Extrapolation",
        finding,
        (
            _describe_forecast_method(evaluation),
            describe_submitters_and_software(evaluation.series),
            OWN_LAWS_TEXT,
            BANDS_TEXT,
            BAND_CHANGE_TEXT,
            *([_describe_law_errors_on_other_datasets()] if ships else []),
            MISSING_DATA_TEXT,
        ),
        (
            ChapterTable(
                "extrapolation-scores",
                f"From {MAX_FITTED_ACCELERATORS} to {MIN_SCORED_ACCELERATORS} and more",
                SCORE_COLUMNS,
                _make_forecast_score_table(evaluation),
                SCORES_NOTE,
            ),
            ChapterTable(
                "extrapolation", "Point by point: predicted / observed - 1", POINT_COLUMNS, points, POINTS_NOTE
            ),
            ChapterTable(
                "extrapolation-bands", "Our own laws with their bands", OWN_BAND_COLUMNS, points, is_short=False
            ),
            *(_make_other_series_tables() if ships else ()),
        ),
        (draw_forecast_fan_chart(evaluation, finding.removesuffix("."), source),),
    )


def _describe_forecast_errors(score_by_law: dict[str, ForecastScore]) -> str:
    unknown, known, chosen = (score_by_law[law] for law in (BEST_BATCH, PARTS_KNOWN_BATCH, PARTS_CHOSEN_BATCH))
    classic = min((score_by_law[law] for law in LAWS if law not in OWN_LAWS), key=lambda each: each.median)
    return (
        f"Forecasts from at most {MAX_FITTED_ACCELERATORS} accelerators to {MIN_SCORED_ACCELERATORS} and more have a "
        f"median error of {format_percentage(unknown.median)} with the law '{BEST_BATCH}' (times alone), "
        f"{format_percentage(known.median)} with '{PARTS_KNOWN_BATCH}', {format_percentage(chosen.median)} with "
        f"'{PARTS_CHOSEN_BATCH}', {format_percentage(classic.median)} with the best classic law ({classic.law}); "
        f"{format_percentage(unknown.covered)}, {format_percentage(known.covered)} and "
        f"{format_percentage(chosen.covered)} of the points lie inside the 90 % bands of the first three laws."
    )


def _describe_forecast_method(evaluation: LawEvaluation) -> str:
    late = [
        f"{each.name}, which starts at {each.accelerator_counts[0]:,} and whose laws are fitted up to "
        f"{each.accelerator_counts[-2]:,}"
        for each in evaluation.series
        if each.accelerator_counts[0] > MAX_FITTED_ACCELERATORS
    ]
    rest = ", ".join(["sizes between", *late])
    return (
        f"Each law is fitted to the sizes up to {MAX_FITTED_ACCELERATORS} of a workload's series and predicts "
        f"{MIN_SCORED_ACCELERATORS} and more. {evaluation.forecast_scores_of_laws[0].points} points count: "
        f"these are few, and a law follows the single systems that it is fitted to. Shown and not counted: {rest}. "
        "A series with too few sizes for a law of three parameters is left out."
    )


def _describe_law_errors_on_other_datasets() -> str:
    """Return a paragraph on the prediction errors of scaling laws on two other data sets.

    The data sets are MLPerf v4.1 with fewer systems and MLPerf v5.0.
    """
    scores_by_series = {
        name: {each.law: each for each in _evaluate_laws_on_csv_series(path).forecast_scores_of_laws}
        for name, path in OTHER_SERIES_PATHS.items()
    }
    sentences = [
        f"On {name}: best batch {format_percentage(scores[BEST_BATCH].median)}, {PARTS_KNOWN_BATCH} "
        f"{format_percentage(scores[PARTS_KNOWN_BATCH].median)}, Amdahl {format_percentage(scores['Amdahl'].median)}, "
        f"{scores[PARTS_KNOWN_BATCH].points} points, of which "
        f"{format_percentage(scores[BEST_BATCH].covered)} lie inside the bands of {BEST_BATCH} and "
        f"{format_percentage(scores[PARTS_KNOWN_BATCH].covered)} inside those of {PARTS_KNOWN_BATCH}."
        for name, scores in scores_by_series.items()
    ]
    return (
        "Two other sets of series are shown as well. The appendix is v4.1 without some systems; it was read first, and "
        "predictions from times alone look better there than on all logs. Laws and bands were written before they were "
        "evaluated on v5.0, which has other accelerators; they were not changed afterwards. "
        f"{' '.join(sentences)} So few points cannot show which rule of the bands is better."
    )


def _make_other_series_tables() -> tuple[ChapterTable, ...]:
    """Return tables of training times forecast by scaling laws, and of the forecast errors.

    The forecasts are for two further data sets shipped with Ensayo.
    """
    evaluations = {name: _evaluate_laws_on_csv_series(path) for name, path in OTHER_SERIES_PATHS.items()}
    columns = (TableColumn("set", "series"), *SCORE_COLUMNS)
    scores = pd.concat([_make_forecast_score_table(each).assign(set=name) for name, each in evaluations.items()])
    rows = [
        {"set": name} | row
        for name, each in evaluations.items()
        for series in each.series
        for row in _make_forecast_table_rows(series, each)
        if row["judged"] == "yes"
    ]
    return (
        ChapterTable("extrapolation-others", "Scores on the other series", columns, scores, SCORES_NOTE),
        ChapterTable(
            "extrapolation-others-points",
            "Other series, point by point",
            OTHER_POINT_COLUMNS,
            pd.DataFrame(rows),
            is_short=False,
        ),
    )


def _evaluate_laws_on_csv_series(csv_path: Path) -> LawEvaluation:
    return evaluate_laws(read_series_csv(csv_path), OTHER_SERIES_LAWS)


def _make_forecast_score_table(evaluation: LawEvaluation) -> pd.DataFrame:
    rows = [
        vars(each) | {"rigid": evaluation.compute_band_coverage_without_law_drift(each.law)}
        for each in evaluation.forecast_scores_of_laws
    ]
    return pd.DataFrame(rows)


def _make_forecast_table_rows(series: ScalingSeries, evaluation: LawEvaluation) -> list[dict[str, object]]:
    name = series.benchmark
    by_law = {law: {each.workers: each for each in evaluation.forecasts_of(law, name)} for law in evaluation.fits}
    sizes = by_law[BEST_BATCH]
    return [_forecast_row(series, [forecasts[workers] for forecasts in by_law.values()]) for workers in sizes]


def _forecast_row(scaling_series: ScalingSeries, law_forecasts: Sequence[LawForecast]) -> dict[str, object]:
    first = law_forecasts[0]
    row: dict[str, object] = {
        "benchmark": scaling_series.benchmark,
        "workload": scaling_series.name,
        "fitted_to": int(first.fitted_to),
        "workers": int(first.workers),
        "observed": first.observed / SECONDS_PER_MINUTE,
        "judged": "yes" if predicts_large_from_small(first) else "no",
    }
    for each in law_forecasts:
        low, high = each.low / SECONDS_PER_MINUTE, each.high / SECONDS_PER_MINUTE
        row |= {f"{each.law} error": each.relative_error, f"{each.law} low": low, f"{each.law} high": high}
        row[each.law] = _format_forecast(each)
    return row


def _format_forecast(law_forecast: LawForecast) -> str:
    missed = "" if law_forecast.is_in_prediction_band else ", missed"
    centre, low, high = (
        format_number(seconds / SECONDS_PER_MINUTE)
        for seconds in (law_forecast.predicted, law_forecast.low, law_forecast.high)
    )
    return f"{centre} [{low}, {high}]{missed}"
