"""Backtests: bands ignore held-out sizes, and widen with distance and with the errors of other series."""

import numpy as np
import pytest

from analysis.laws import AmdahlLaw, BestBatchTrainingTimeLaw, NoiseEstimate, SeriesColumns, TrainingTimeLaw
from analysis.laws.backtest import (
    HoldoutError,
    LawBacktestResult,
    LawComparison,
    backtest_law,
    estimate_residual_noise,
    score_forecasts,
    split_series,
)
from analysis.laws.training_time import compute_fastest_batches

WORKERS = np.array([4.0, 8, 16, 64, 512])


def series(a: float, b: float, seed: int) -> SeriesColumns:
    noise = np.exp(0.02 * np.random.default_rng(seed).standard_normal(WORKERS.size))
    return {
        "workers": WORKERS,
        "seconds": BestBatchTrainingTimeLaw().predict_output(np.array([a, b]), {"workers": WORKERS}) * noise,
    }


SERIES = {"one": series(100, 0.5, 1), "two": series(40, 0.1, 2), "three": series(900, 2, 3), "four": series(9, 0.2, 4)}


def test_forecasts_do_not_depend_on_held_out_observations() -> None:
    """Predictions and bands of all series stay bit-identical when the observations beyond 64 workers change."""
    altered_series = {
        name: {**columns, "seconds": np.where(columns["workers"] > 64, 1e6, columns["seconds"])}
        for name, columns in SERIES.items()
    }

    original, altered = (
        LawComparison({"law": AmdahlLaw()}, data).forecasts("law") for data in (SERIES, altered_series)
    )

    assert [(forecast.predicted, forecast.low, forecast.high) for forecast in original] == [
        (forecast.predicted, forecast.low, forecast.high) for forecast in altered
    ]
    assert {forecast.observed for forecast in altered} == {1e6}


def test_the_band_of_a_series_comes_from_the_errors_of_other_series() -> None:
    """A series that no law fits widens the bands of all series."""
    kinked = {**SERIES, "odd": {**SERIES["one"], "seconds": SERIES["one"]["seconds"] * [1, 1, 1, 6, 1]}}
    law = {"law": BestBatchTrainingTimeLaw()}

    before = {forecast.series: forecast.high / forecast.low for forecast in LawComparison(law, SERIES).forecasts("law")}
    after = {forecast.series: forecast.high / forecast.low for forecast in LawComparison(law, kinked).forecasts("law")}

    assert all(after[name] > 1.2 * before[name] for name in before)


def test_a_series_without_small_sizes_is_fitted_to_all_but_its_largest_size() -> None:
    large = {**SERIES["one"], "workers": 100 * WORKERS}

    forecasts = LawComparison({"law": AmdahlLaw()}, {**SERIES, "x": large}).forecasts("law")
    (forecast,) = [candidate for candidate in forecasts if candidate.series == "x"]

    assert (forecast.fitted_to, forecast.workers) == (6400, 51200)


def test_the_generating_law_predicts_better_than_amdahls_law() -> None:
    laws = {"amdahl": AmdahlLaw(), "best": BestBatchTrainingTimeLaw()}
    comparison = LawComparison(laws, SERIES)

    scores = {name: score_forecasts(name, comparison.forecasts(name)) for name in laws}

    assert scores["best"].median < 0.15 < scores["amdahl"].median
    assert (scores["best"].points, scores["best"].covered) == (4, 1)
    assert scores["best"].worst >= scores["best"].median


def test_a_backtest_holds_out_larger_sizes_at_every_cut() -> None:
    errors = backtest_law(BestBatchTrainingTimeLaw(), split_series(SERIES["one"], "workers", 64)[0])

    assert [error.workers for error in errors.holdout_errors] == [16, 64, 64]  # from two sizes, then from three
    assert errors.holdout_errors[1].log_distance == pytest.approx(np.log(64 / 8))
    assert errors.degrees_of_freedom == 2


@pytest.mark.parametrize(("error", "drift"), [(0.05, 0.02), (1.0, 0.7)])
def test_drift_is_estimated_from_errors_beyond_their_variance(error: float, drift: float) -> None:
    """Five series that all miss by a factor of e at ten times the size have drifted by about 1 / sqrt(ln 10)."""
    record = LawBacktestResult(0.01, 2, (HoldoutError(64, error, 0.01, np.log(10)),))

    noise = estimate_residual_noise([record] * 5)

    assert noise.sd == pytest.approx(np.sqrt(0.01 / 2))
    assert noise.degrees_of_freedom == 10
    assert np.median(noise.drift_sds) == pytest.approx(drift, rel=0.6)


def test_without_other_series_the_drift_keeps_its_prior() -> None:
    assert np.median(estimate_residual_noise([]).drift_sds) == pytest.approx(0.5, abs=0.01)


def test_bands_widen_with_the_distance_from_the_fitted_sizes() -> None:
    fit = BestBatchTrainingTimeLaw().fit(SERIES["one"], NoiseEstimate(0.05, 10, np.full(1, 0.3)))

    inside, beyond = (
        fit.prediction_band({"workers": np.array([64.0])}),
        fit.prediction_band({"workers": np.array([8192.0])}),
    )

    assert fit.log_distance_to_fit_range({"workers": np.array([2.0, 4, 512, 1024])}) == pytest.approx(
        [np.log(2), 0, 0, np.log(2)]
    )
    assert beyond.high / beyond.low > 2 * inside.high / inside.low


def test_the_best_batch_minimises_training_time() -> None:
    theta, workers = np.array([1e5, 640, 0.02, 1e-3]), np.array([4.0, 256])
    batch = compute_fastest_batches(theta, workers)

    at_best, at_given = (
        TrainingTimeLaw(batch=how).predict_output(theta, {"workers": workers, "batch": batch})
        for how in ("best", "given")
    )
    nearby = [
        TrainingTimeLaw().predict_output(theta, {"workers": workers, "batch": factor * batch}) for factor in (0.9, 1.1)
    ]

    assert at_best == pytest.approx(at_given)
    assert all((seconds > at_best).all() for seconds in nearby)
    closed = BestBatchTrainingTimeLaw().predict_output(np.array([1e5 * 1e-3, 1e5 * 0.02 / 640]), {"workers": workers})
    assert at_best == pytest.approx(closed)
