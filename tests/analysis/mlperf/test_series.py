"""Shipped series: factors, balance points, and predictions for 512 and more accelerators from up to 64."""

import re
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from analysis.figures.drawing.style import figure_style_context
from analysis.laws import CriticalBatchLaw, TrainingTimeLaw
from analysis.laws.backtest import PILOT_NOISE, LawComparison
from analysis.laws.training_time import LogNormalPrior
from analysis.mlperf.chapters import Chapter
from analysis.mlperf.chapters.balance import _make_chosen_count_cells, accelerator_choice_chapter
from analysis.mlperf.chapters.extrapolation import OTHER_SERIES_LAWS, extrapolation_chapter
from analysis.mlperf.chapters.factors import _scaling_efficiency_rows, scaling_efficiency_chapter
from analysis.mlperf.chapters.laws import scaling_laws_chapter
from analysis.mlperf.forecasts import (
    BEST_BATCH,
    LAWS,
    MAX_FITTED_ACCELERATORS,
    OWN_LAWS,
    PARTS_CHOSEN_BATCH,
    PARTS_KNOWN_BATCH,
    evaluate_laws,
    fit_law_to_each_series,
    has_enough_sizes_to_fit,
)
from analysis.mlperf.reading.accelerators import software_stack
from analysis.mlperf.reading.results import SHIPPED_RESULTS_PATH as SHIPPED_RESULTS
from analysis.mlperf.reading.results import MlperfResult, MlperfResults, read_results_csv
from analysis.mlperf.series import (
    APPENDIX_SERIES_PATH,
    V5_0_SERIES_PATH,
    describe_submitters_and_software,
    read_series_csv,
    read_shipped_series,
    shipped_scaling_series,
)
from analysis.mlperf.study import MlperfStudy, make_mlperf_study
from analysis.report.wording import NO_VALUE, format_number, format_percentage, format_signed_percentage
from analysis.statistics.worker_count_rules import ChosenWorkerCount, choose_worker_counts

SERIES = {series.benchmark: series for series in read_series_csv(APPENDIX_SERIES_PATH)}

JUDGED_SIZES = {
    *{("bert", 3472), ("ssd", 2528), ("gnn", 512)},
    *{(name, size) for name in ("llama2_70b_lora", "stable_diffusion") for size in (512, 1024)},
}

# benchmark, N of the base, N -> speedup, E', hardware, statistical, as they were computed from the logs and rounded
FACTORS = [
    ("bert", 4, 64, 11.0, 0.68, 0.78, 0.88),
    ("bert", 4, 3472, 82.5, 0.095, 0.21, 0.46),
    ("ssd", 4, 64, 11.6, 0.73, 0.73, 1.00),
    ("ssd", 4, 2528, 89.7, 0.14, 0.31, 0.45),
    ("llama2_70b_lora", 4, 64, 12.2, 0.76, 0.77, 0.99),
    ("llama2_70b_lora", 4, 1024, 47.0, 0.18, 0.65, 0.28),
    ("stable_diffusion", 4, 1024, 43.7, 0.17, 0.33, 0.53),
    ("gnn", 4, 512, 23.2, 0.18, 0.57, 0.32),
    ("dlrm_dcnv2", 4, 128, 7.5, 0.23, 0.29, 0.81),
    ("gpt3", 256, 11616, 28.1, 0.62, 0.62, 0.99),
]


@pytest.mark.parametrize(
    ("benchmark", "base", "accelerators", "speedup", "efficiency", "hardware", "learning"), FACTORS
)
def test_hardware_and_statistical_efficiency_are_those_of_the_logs(
    benchmark: str, base: int, accelerators: int, speedup: float, efficiency: float, hardware: float, learning: float
) -> None:
    """The tolerance is half a unit of the last digit that was kept, plus the effect of rounded minutes."""
    series = SERIES[benchmark]
    factors = series.compute_efficiencies()[series.accelerator_counts.index(accelerators)]

    assert series.accelerator_counts[0] == base
    assert factors.speedup == pytest.approx(speedup, abs=0.06)
    assert factors.efficiency == pytest.approx(efficiency, abs=0.0055)
    assert factors.hardware == pytest.approx(hardware, abs=0.0055)
    assert factors.statistical == pytest.approx(learning, abs=0.0055)
    assert factors.hardware * factors.statistical == pytest.approx(factors.efficiency)


def test_the_spread_of_runs_widens_a_speedup_without_moving_its_centre() -> None:
    draws = SERIES["bert"].bootstrap_speedups()

    assert (draws[:, 0] == 1).all()
    assert np.median(draws[:, -1]) == pytest.approx(82.4, rel=0.01)
    assert np.std(draws[:, -1]) / 82.4 == pytest.approx(0.071 * np.sqrt(2 / 8), rel=0.2)


def test_the_uncertainty_of_every_size_comes_from_its_own_runs() -> None:
    """RetinaNet's runs differ by 0.1 % on 4 accelerators and by 13 % on 64, so the base does not stand for others."""
    (ssd,) = (series for series in read_shipped_series() if series.benchmark == "ssd")

    half_interquartile_ranges = np.subtract(*np.percentile(np.log(ssd.bootstrap_speedups()), [75, 25], axis=0)) / 2

    expected_of_own_runs = [stdtrit(size.runs - 1, 0.75) * size.run_spread / np.sqrt(size.runs) for size in ssd.points]
    expected = [0, np.hypot(*expected_of_own_runs[:2]), *expected_of_own_runs[2:]]
    assert half_interquartile_ranges == pytest.approx(expected, rel=0.2)


def test_no_interval_is_given_for_the_speedup_of_a_single_run() -> None:
    """The spread of a single run is unknown, and that of a base belongs to every speedup."""
    bert = SERIES["bert"]
    single = [point.model_copy(update={"runs": 1}) for point in bert.points]
    largest_ran_once = replace(bert, points=(*bert.points[:-1], single[-1]))

    assert largest_ran_once.speedup_intervals()[-1] is None
    assert largest_ran_once.speedup_intervals()[-2] is not None
    assert _scaling_efficiency_rows(largest_ran_once)[-1]["speedup_ci"] == "single run"
    assert set(replace(bert, points=(single[0], *bert.points[1:])).speedup_intervals()) == {None}


def test_512_and_more_accelerators_are_predicted_from_64_with_calibrated_bands() -> None:
    """At least 80 % inside bands of 90 %, median error at most 40 %; classic laws miss by about 80 %, up to 223 %."""
    evaluation = evaluate_laws(read_series_csv(APPENDIX_SERIES_PATH))
    scores = {score.law: score for score in evaluation.forecast_scores_of_laws}

    assert {(forecast.series, forecast.workers) for forecast in evaluation.large_system_forecasts} == JUDGED_SIZES
    for law in (BEST_BATCH, PARTS_KNOWN_BATCH, PARTS_CHOSEN_BATCH):
        assert scores[law].points == 7
        assert scores[law].median <= 0.4
        assert scores[law].covered >= 0.8
        assert scores[law].width < scores["Amdahl"].width
    for law in ("Amdahl", "+ log N", "USL"):
        assert scores[law].median == pytest.approx(0.81, abs=0.01)
        assert scores[law].worst == pytest.approx(2.23, abs=0.01)


def test_on_all_logs_the_laws_of_parts_meet_the_aim_and_best_batch_misses_it() -> None:
    """The page leads with these numbers: the appendix lacks systems and favours laws that use times alone."""
    evaluation = evaluate_laws(read_shipped_series())
    scores = {score.law: score for score in evaluation.forecast_scores_of_laws}

    assert {(forecast.series, forecast.workers) for forecast in evaluation.large_system_forecasts} == JUDGED_SIZES
    assert scores[BEST_BATCH].median == pytest.approx(0.41, abs=0.01)
    assert scores[PARTS_KNOWN_BATCH].median == pytest.approx(0.14, abs=0.01)
    assert scores["Amdahl"].median == pytest.approx(1.28, abs=0.01)
    for law in OWN_LAWS:
        assert scores[law].covered >= 0.8
        assert scores[law].width < scores["Amdahl"].width
        assert evaluation.compute_band_coverage_without_law_drift(law) < scores[law].covered


def test_bands_also_cover_a_round_that_was_not_used_before() -> None:
    """The page states the results for v5.0; a change of laws or bands shows here."""
    evaluation = evaluate_laws(read_series_csv(V5_0_SERIES_PATH), OTHER_SERIES_LAWS)
    scores = {score.law: score for score in evaluation.forecast_scores_of_laws}

    assert {(forecast.series, forecast.workers) for forecast in evaluation.large_system_forecasts} == {
        (name, 512) for name in ("bert", "llama2_70b_lora", "retinanet", "stable_diffusion")
    }
    assert [round(scores[law].median, 2) for law in OTHER_SERIES_LAWS] == pytest.approx(
        [0.40, 0.16, 0.25, 0.31], abs=0.011
    )
    assert [scores[law].covered for law in OTHER_SERIES_LAWS] == [1, 1, 1, 1]


@pytest.mark.parametrize("law", LAWS)
def test_no_law_depends_on_held_out_sizes_of_the_shipped_series(law: str) -> None:
    """Held-out times and samples are altered; predictions and bands stay bit-identical."""
    series = {shipped.benchmark: shipped for shipped in read_shipped_series()}
    columns_by_name = {name: dict(shipped.scaling_law_fit_data) for name, shipped in series.items()}
    altered_columns = {name: alter_held_out_sizes(fit_columns) for name, fit_columns in columns_by_name.items()}

    original, altered = (
        LawComparison({law: LAWS[law]}, columns, MAX_FITTED_ACCELERATORS).forecasts(law)
        for columns in (columns_by_name, altered_columns)
    )

    assert len(original) >= len(JUDGED_SIZES)
    assert [(forecast.predicted, forecast.low, forecast.high) for forecast in original] == [
        (forecast.predicted, forecast.low, forecast.high) for forecast in altered
    ]
    assert all(first.observed != second.observed for first, second in zip(original, altered, strict=True))


def alter_held_out_sizes(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns with other times, steps and samples at the sizes that laws may not see."""
    last = max(
        [MAX_FITTED_ACCELERATORS] if columns["workers"][0] <= MAX_FITTED_ACCELERATORS else columns["workers"][:-1]
    )
    held_out = columns["workers"] > last
    factors = {"seconds": 17.0, "samples": 5.0, "step_seconds": 0.3}
    return {name: np.where(held_out, factors.get(name, 1.0) * values, values) for name, values in columns.items()}


def test_the_assumed_noise_is_that_of_small_systems() -> None:
    spreads = [
        size.run_spread
        for shipped in read_shipped_series()
        for size in shipped.points
        if size.accelerators <= MAX_FITTED_ACCELERATORS
    ]

    assert np.median(spreads) == pytest.approx(PILOT_NOISE.sd, abs=0.005)


def test_law_fit_columns_are_in_seconds() -> None:
    """736 of BERT's 2,511,000 samples on four H100, which take 9.836 minutes."""
    columns = SERIES["bert"].scaling_law_fit_data

    assert columns["seconds"][0] == pytest.approx(590.16)
    assert columns["step_seconds"][0] == pytest.approx(590.16 * 736 / 2511000)


def test_a_series_with_too_few_sizes_gets_no_forecast() -> None:
    rgat = next(candidate for candidate in read_series_csv(V5_0_SERIES_PATH) if candidate.benchmark == "rgat")

    assert rgat.accelerator_counts == [8, 72, 256]
    assert not has_enough_sizes_to_fit(rgat)
    assert all(map(has_enough_sizes_to_fit, read_shipped_series()))
    assert evaluate_laws((rgat,)).large_system_forecasts == ()


def test_the_classic_laws_have_their_known_errors() -> None:
    errors = {
        (forecast.series, forecast.workers): forecast.relative_error
        for forecast in evaluate_laws(read_series_csv(APPENDIX_SERIES_PATH)).forecasts
        if forecast.law == "Amdahl"
    }

    assert errors[("bert", 3472)] == pytest.approx(2.23, abs=0.01)
    assert errors[("ssd", 2528)] == pytest.approx(1.77, abs=0.01)
    assert errors[("llama2_70b_lora", 512)] == pytest.approx(-0.14, abs=0.01)
    assert errors[("gpt3", 11616)] == pytest.approx(0.88, abs=0.01)


def test_a_law_is_fitted_to_all_sizes_of_a_series() -> None:
    fit = fit_law_to_each_series(read_series_csv(APPENDIX_SERIES_PATH), CriticalBatchLaw())["bert"]

    assert fit.size_range == (736, 13888)  # batches
    assert fit.parameters[1] == pytest.approx(10865, rel=0.01)
    assert fit.unidentified_parameters == ()


def test_balance_points_come_with_rule_and_interval() -> None:
    write_chapter = accelerator_choice_chapter(make_mlperf_study(read_results_csv()))

    assert write_chapter is not None
    table = write_chapter.tables[0].data
    assert set(table.workload) == {series.name for series in read_shipped_series()}
    assert set(table.rule) == {"efficiency >= 0.5", "knee", "least T^2 N"}
    bert = table[(table.benchmark == "bert") & (table.rule == "efficiency >= 0.5")].iloc[0]
    assert bert["built"] == 64
    assert 64 <= bert["between"] < 300


def test_without_draws_there_is_no_interval() -> None:
    """A single run per size has an unknown spread; an interval of width zero would be wrong."""
    picks = choose_worker_counts([1, 2, 4], 1, np.array([1.0, 1.8, 2.5]), None)

    assert {_make_chosen_count_cells("built", pick)["built_interval"] for pick in picks} == {NO_VALUE}
    assert _make_chosen_count_cells("built", ChosenWorkerCount("knee", 2, (2, 2)))["built_interval"] == "2"
    assert _make_chosen_count_cells("built", None) == {"built": None, "built_interval": NO_VALUE}


def test_a_family_is_measured_against_its_own_smallest_system() -> None:
    """A family is a kind of accelerator of one submitter with one software stack."""
    (bert,) = [workload for workload in make_mlperf_study(read_results_csv()).workloads if workload.benchmark == "bert"]

    families = {(family.reference.accelerator_kind, family.submitter_and_software): family for family in bert.families}
    largest = families["H100 SXM", "NVIDIA pytorch"].systems[-1]

    assert [each.result.accelerator_count for each in families["H100 SXM", "NVIDIA pytorch"].systems] == [8, 64, 3472]
    assert largest.efficiency == pytest.approx(
        (largest.reference.minutes / largest.result.minutes) / (3472 / 8)
    )  # 1.77 by the study's reference
    assert families["H100 SXM", "mixed"].reference.accelerator_count == 4
    assert not [kind for kind, _ in families if kind.startswith("B200")]  # one size alone


def result(submitter: str, count: int, minutes: float, accelerator: str = "B200", **fields: str) -> MlperfResult:
    return MlperfResult(
        benchmark="ssd", submitter=submitter, system=f"{accelerator}-{count}", accelerator=accelerator,
        accelerator_count=count, minutes=minutes, **fields,
    )  # fmt: skip


def test_a_system_is_compared_with_its_submitters_own_systems_before_those_of_others() -> None:
    """Against a faster system of eight accelerators of another submitter, 128 B200 seem to scale badly."""
    rows = (
        result("One", 8, 10.0), result("Two", 8, 26.0), result("Two", 128, 4.7), result("Three", 64, 2.0),
        result("Two", 256, 3.0, framework="TensorFlow"),
    )  # fmt: skip
    (workload,) = make_mlperf_study(MlperfResults(rows, "mine.csv")).workloads

    assert workload.family_efficiency(rows[2]) == (pytest.approx(26 / 4.7 / 16), "Two")
    assert workload.family_efficiency(rows[3]) == (pytest.approx(26 / 2.0 / 8), "mixed")
    assert workload.family_efficiency(rows[4]) == (pytest.approx(26 / 3.0 / 32), "mixed")
    assert workload.family_efficiency(rows[0]) == (None, "")  # no smaller system of the same kind


def test_a_system_without_accelerators_is_no_reference_for_accelerators() -> None:
    """Its processors cannot be counted against accelerators, however few they are."""
    rows = (result("One", 1, 500.0, "Xeon", unit="processors"), result("One", 8, 10.0), result("One", 16, 6.0))
    (workload,) = make_mlperf_study(MlperfResults(rows, "mine.csv")).workloads

    assert workload.reference == rows[1]
    assert [family.reference for family in workload.families] == [rows[1]]


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("PyTorch NVIDIA Release 24.09", "pytorch"),
        ("NVIDIA PYTORCH", "pytorch"),
        ("NGC Pytorch 24.09, NGC HugeCTR 24.09, NVIDIA Nemo 24.09", "hugectr + nemo + pytorch"),
        ("Own Framework 1.2.3", "own framework"),
        ("", ""),
    ],
)
def test_a_software_stack_has_one_name_for_all_spellings_and_versions(framework: str, stack: str) -> None:
    assert software_stack(framework) == stack


def test_results_of_a_user_have_no_shipped_series() -> None:
    user_study = make_mlperf_study(MlperfResults(read_results_csv().rows, "mine.csv"))

    assert shipped_scaling_series(user_study) == ()
    assert extrapolation_chapter(user_study) is None


def test_the_shipped_table_has_its_series_under_another_path_spelling() -> None:
    detour = SHIPPED_RESULTS.parent / ".." / "data" / SHIPPED_RESULTS.name

    assert shipped_scaling_series(make_mlperf_study(read_results_csv(detour))) == read_shipped_series()


@pytest.fixture(scope="module")
def write_chapter() -> Callable[[Callable[[MlperfStudy], Chapter | None]], Chapter]:
    """Writes a chapter about the shipped results."""

    def write(make_chapter: Callable[[MlperfStudy], Chapter | None]) -> Chapter:
        with figure_style_context():
            result = make_chapter(make_mlperf_study(read_results_csv()))
        assert result is not None
        return result

    return write


WriteChapter = Callable[[Callable[[MlperfStudy], Chapter | None]], Chapter]


def table(chapter: Chapter, name: str) -> pd.DataFrame:
    return next(chapter_table.data for chapter_table in chapter.tables if chapter_table.name == name)


NUMBER = re.compile(r"([-+]?\d[\d,]*\.?\d*)(%?)")


def rows_agree(first: str, second: str) -> bool:
    """Return whether two rows have the same words and close numbers: other processors round differently."""
    first_numbers, second_numbers = (
        [float(match[1].replace(",", "")) for match in NUMBER.finditer(row)] for row in (first, second)
    )
    near = [
        pytest.approx(value, rel=0.12, abs=0.5 if unit else 0)
        for value, (_, unit) in zip(second_numbers, NUMBER.findall(second), strict=True)
    ]
    return NUMBER.sub("#", first) == NUMBER.sub("#", second) and first_numbers == near


@pytest.mark.parametrize(("noise", "fixed", "width"), [(1 / 3, 1, 1), (3, 1, 1), (1, 1 / 3, 1), (1, 3, 1), (1, 1, 2)])
def test_other_priors_give_similar_predictions(
    noise: float, fixed: float, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both priors are judgements, so the accuracy of the laws must not depend on either."""
    known, name = TrainingTimeLaw(), f"parts of other priors: {noise}, {fixed}, {width}"
    by_noise = LogNormalPrior(known.noise_ratio.median * noise, known.noise_ratio.sd * width)
    by_fixed = LogNormalPrior(known.fixed_ratio.median * fixed, known.fixed_ratio.sd * width)
    monkeypatch.setitem(LAWS, name, TrainingTimeLaw(noise_ratio=by_noise, fixed_ratio=by_fixed))

    (score,) = evaluate_laws(read_shipped_series(), (name,)).forecast_scores_of_laws

    assert score.median < 0.2
    assert score.covered == 1


def test_laws_are_ranked_by_the_printed_error_over_the_same_sizes(write_chapter: WriteChapter) -> None:
    laws_chapter = write_chapter(scaling_laws_chapter)
    backtests = table(laws_chapter, "laws-backtests")

    assert backtests["median"].is_monotonic_increasing
    assert set(backtests.law) == set(LAWS)
    assert backtests.sizes.nunique() == backtests.series.nunique() == 1
    assert f"{format_percentage(backtests['median'].iloc[0])} ({backtests.law.iloc[0]})" in laws_chapter.finding
    assert f"{format_percentage(backtests['median'].iloc[-1])} ({backtests.law.iloc[-1]})" in laws_chapter.finding


def test_laws_of_other_observations_have_no_aicc(write_chapter: WriteChapter) -> None:
    fits = table(write_chapter(scaling_laws_chapter), "laws-fits")
    is_law_of_parts = fits.law.isin([PARTS_KNOWN_BATCH, PARTS_CHOSEN_BATCH])

    assert fits[is_law_of_parts].aicc.isna().all()
    assert fits[~is_law_of_parts].aicc.notna().any()


def test_the_page_leads_with_all_logs_and_states_what_changed_afterwards(write_chapter: WriteChapter) -> None:
    extrapolation = write_chapter(extrapolation_chapter)
    scores, other_scores = table(extrapolation, "extrapolation-scores"), table(extrapolation, "extrapolation-others")

    assert "41% with the law 'best batch' (times alone), 14% with 'parts, batch known'" in extrapolation.finding
    assert "100%, 100% and 86% of the points lie inside the 90 % bands of the first three laws" in extrapolation.finding
    assert any("changed after their coverage on v4.1 had been seen" in text for text in extrapolation.paragraphs)
    assert (scores.rigid < scores.covered).any()
    rigid = other_scores[other_scores.set == "v4.1, the appendix"].set_index("law").rigid
    assert [rigid[law] for law in OWN_LAWS] == pytest.approx([5 / 7, 6 / 7, 5 / 7])
    assert set(other_scores.set) == {"v4.1, the appendix", "v5.0, not seen before"}


def test_the_documentation_has_the_current_numbers_of_series_and_laws(
    write_chapter: WriteChapter, pytestconfig: pytest.Config
) -> None:
    """Every row of its tables is current."""
    page = (pytestconfig.rootpath / "docs" / "statistics.md").read_text()
    extrapolation = write_chapter(extrapolation_chapter)
    expected = [
        *map(factor_row, table(write_chapter(scaling_efficiency_chapter), "factors").to_dict("records")),
        *map(back_row, table(write_chapter(scaling_laws_chapter), "laws-backtests").to_dict("records")),
        *map(point_row, table(extrapolation, "extrapolation").query("judged == 'yes'").to_dict("records")),
        *map(score_row, table(extrapolation, "extrapolation-scores").assign(set="v4.1").to_dict("records")),
        *map(score_row, table(extrapolation, "extrapolation-others").to_dict("records")),
        *map(other_row, table(extrapolation, "extrapolation-others-points").to_dict("records")),
    ]

    rows = [row for row in page.splitlines() if row.startswith("|")]
    assert [row for row in expected if not any(rows_agree(row, page_row) for page_row in rows)] == []


def line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def factor_row(row: dict[Hashable, Any]) -> str:
    sizes = f"{row['base']:,} \N{RIGHTWARDS ARROW} {row['accelerators']:,}"
    values = (format_number(row[name]) for name in ("speedup", "efficiency", "hardware", "statistical"))
    return line(row["workload"], sizes, *values, f"{row['batch']:,}")


def back_row(row: dict[Hashable, Any]) -> str:
    return line(row["law"], format_percentage(row["median"]), format_number(row["rms"]), row["sizes"])


def own_law_cell(row: dict[Hashable, Any], law: str) -> str:
    missed = ", missed" if "missed" in str(row[law]) else ""
    return (
        f"{format_signed_percentage(row[f'{law} error'])} [{row[f'{law} low']:.2g}, {row[f'{law} high']:.2g}]{missed}"
    )


def point_row(row: dict[Hashable, Any]) -> str:
    classic = (format_signed_percentage(row[f"{law} error"]) for law in LAWS if law not in OWN_LAWS)
    return line(
        row["workload"],
        f"{row['workers']:,}",
        format_number(row["observed"]),
        *classic,
        *(own_law_cell(row, law) for law in OWN_LAWS),
    )


def other_row(row: dict[Hashable, Any]) -> str:
    size, minutes = f"{row['workers']:,}", format_number(row["observed"])
    return line(
        row["set"],
        row["workload"],
        size,
        minutes,
        format_signed_percentage(row["Amdahl error"]),
        *(own_law_cell(row, law) for law in OWN_LAWS),
    )


def score_row(row: dict[Hashable, Any]) -> str:
    shares = (format_percentage(row[name]) for name in ("median", "worst", "covered", "rigid"))
    return line(row["set"], row["law"], row["points"], *shares, format_number(row["width"]))


def test_balance_points_at_the_largest_size_are_bounds_and_grid_ones_approximate(benchmark_rows: pd.DataFrame) -> None:
    """A rule that would choose more than the largest size has no exact answer; a law on a grid is approximate."""
    for row in benchmark_rows.itertuples():
        last = SERIES[str(row.benchmark)].accelerator_counts[-1]
        for text, picked in ((row.built_told, row.built), (row.between_told, row.between)):
            assert str(text).startswith("≥") == (picked == last and row.rule != "knee")
    assert not any("≈" in text for text in benchmark_rows.built_told)
    assert any("≈" in text for text in benchmark_rows.between_told)
    gpt3 = benchmark_rows[(benchmark_rows.benchmark == "gpt3") & benchmark_rows.rule.str.startswith("efficiency")]
    assert list(gpt3.built_told) == ["≥ 11,616"]


def test_the_finding_on_balance_points_states_how_far_rules_differ(benchmark_rows: pd.DataFrame) -> None:
    """The rules choose 64, 64 and 3,472 among the systems built for BERT."""
    write_chapter = accelerator_choice_chapter(make_mlperf_study(read_results_csv()))

    assert write_chapter is not None
    by_workload = benchmark_rows.dropna(subset=["built"]).groupby("workload").built
    largest_ratio = float((by_workload.max() / by_workload.min()).max())
    assert largest_ratio > 50
    assert f" to {largest_ratio:.0f} times the smallest among systems that were built" in write_chapter.finding


@pytest.fixture(scope="module")
def benchmark_rows() -> pd.DataFrame:
    """The table of balance points of the shipped series."""
    write_chapter = accelerator_choice_chapter(make_mlperf_study(read_results_csv()))
    assert write_chapter is not None
    return write_chapter.tables[0].data


def test_every_chapter_on_series_states_whether_a_series_is_mixed(write_chapter: WriteChapter) -> None:
    """The shipped sizes were built by several submitters; a reader must not take E' for one system that grows."""
    for make_chapter in (accelerator_choice_chapter, scaling_laws_chapter, extrapolation_chapter):
        paragraphs = write_chapter(make_chapter).paragraphs
        assert any("have mixed submitters or software: BERT, " in text for text in paragraphs), make_chapter


def test_the_series_of_one_submitter_is_named() -> None:
    series = {each.name: each for each in read_series_csv(V5_0_SERIES_PATH)}
    rgat, dlrm = series["R-GAT"], series["DLRM-DCNv2"]

    assert describe_submitters_and_software([rgat]).endswith(" have one submitter and software: R-GAT (NVIDIA dgl).")
    assert describe_submitters_and_software([dlrm, replace(rgat, submitter_and_software="mixed")]).endswith(
        "(HPE dgl + hugectr + nemo + pytorch); mixed submitters or software: R-GAT."
    )
