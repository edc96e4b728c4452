"""Held-out sizes: bands know nothing of them, and widen with distance and with what other series went through."""

import numpy as np
import pytest

from analysis.laws import AmdahlLaw, BestBatchLaw, ResidualNoise, SeriesColumns, TrainingTimeLaw
from analysis.laws.backtest import (
    HoldoutError,
    LawBacktestErrors,
    LawComparison,
    backtest_law,
    estimate_residual_noise,
    score_forecasts,
    split_series,
)
from analysis.laws.training_time import best_global_batch

WORKERS = np.array([4.0, 8, 16, 64, 512])


def series(a: float, b: float, seed: int) -> SeriesColumns:
    noise = np.exp(0.02 * np.random.default_rng(seed).standard_normal(WORKERS.size))
    return {
        "workers": WORKERS,
        "seconds": BestBatchLaw().predict_output(np.array([a, b]), {"workers": WORKERS}) * noise,
    }


SERIES = {"one": series(100, 0.5, 1), "two": series(40, 0.1, 2), "three": series(900, 2, 3), "four": series(9, 0.2, 4)}


def test_no_forecast_knows_what_it_is_held_to() -> None:
    """Whatever is observed beyond 64, predictions and bands of all series stay to the bit."""
    spoilt = {
        name: {**each, "seconds": np.where(each["workers"] > 64, 1e6, each["seconds"])} for name, each in SERIES.items()
    }

    here, there = (LawComparison({"law": AmdahlLaw()}, told).forecasts("law") for told in (SERIES, spoilt))

    assert [(each.predicted, each.low, each.high) for each in here] == [
        (each.predicted, each.low, each.high) for each in there
    ]
    assert {each.observed for each in there} == {1e6}


def test_the_band_of_a_series_comes_from_the_others() -> None:
    """One series that no law follows widens every band, but not by way of its own noise."""
    kinked = {**SERIES, "odd": {**SERIES["one"], "seconds": SERIES["one"]["seconds"] * [1, 1, 1, 6, 1]}}
    law = {"law": BestBatchLaw()}

    before = {each.series: each.high / each.low for each in LawComparison(law, SERIES).forecasts("law")}
    after = {each.series: each.high / each.low for each in LawComparison(law, kinked).forecasts("law")}

    assert all(after[name] > 1.2 * before[name] for name in before)


def test_a_series_without_small_sizes_shows_all_but_its_largest() -> None:
    large = {**SERIES["one"], "workers": 100 * WORKERS}

    forecasts = LawComparison({"law": AmdahlLaw()}, {**SERIES, "x": large}).forecasts("law")
    (found,) = [each for each in forecasts if each.series == "x"]

    assert (found.fitted_to, found.workers) == (6400, 51200)


def test_the_right_law_predicts_better_than_amdahls() -> None:
    laws = {"amdahl": AmdahlLaw(), "best": BestBatchLaw()}
    contest = LawComparison(laws, SERIES)

    scores = {name: score_forecasts(name, contest.forecasts(name)) for name in laws}

    assert scores["best"].median < 0.15 < scores["amdahl"].median
    assert (scores["best"].points, scores["best"].covered) == (4, 1)
    assert scores["best"].worst >= scores["best"].median


def test_a_backtest_cuts_a_series_at_every_size() -> None:
    found = backtest_law(BestBatchLaw(), split_series(SERIES["one"], "workers", 64)[0])

    assert [miss.workers for miss in found.holdout_errors] == [16, 64, 64]  # from two sizes, then from three
    assert found.holdout_errors[1].log_distance == pytest.approx(np.log(64 / 8))
    assert found.degrees_of_freedom == 2


@pytest.mark.parametrize(("error", "drift"), [(0.05, 0.02), (1.0, 0.7)])
def test_drift_is_what_errors_exceed_their_variance_by(error: float, drift: float) -> None:
    """Five series that all miss by a factor of e at ten times the size have drifted by about 1 / sqrt(ln 10)."""
    record = LawBacktestErrors(0.01, 2, (HoldoutError(64, error, 0.01, np.log(10)),))

    found = estimate_residual_noise([record] * 5)

    assert found.sd == pytest.approx(np.sqrt(0.01 / 2))
    assert found.degrees_of_freedom == 10
    assert np.median(found.drift_sds) == pytest.approx(drift, rel=0.6)


def test_without_other_series_any_drift_is_as_likely() -> None:
    assert np.median(estimate_residual_noise([]).drift_sds) == pytest.approx(0.5, abs=0.01)


def test_bands_widen_with_the_distance_from_what_was_seen() -> None:
    fit = BestBatchLaw().fit(SERIES["one"], ResidualNoise(0.05, 10, np.full(1, 0.3)))

    inside, beyond = (
        fit.prediction_band({"workers": np.array([64.0])}),
        fit.prediction_band({"workers": np.array([8192.0])}),
    )

    assert fit.log_distance_beyond_range({"workers": np.array([2.0, 4, 512, 1024])}) == pytest.approx(
        [np.log(2), 0, 0, np.log(2)]
    )
    assert beyond.high / beyond.low > 2 * inside.high / inside.low


def test_the_best_batch_is_where_time_is_least() -> None:
    theta, workers = np.array([1e5, 640, 0.02, 1e-3]), np.array([4.0, 256])
    batch = best_global_batch(theta, workers)

    at_best, at_given = (
        TrainingTimeLaw(batch=how).predict_output(theta, {"workers": workers, "batch": batch})
        for how in ("best", "given")
    )
    nearby = [
        TrainingTimeLaw().predict_output(theta, {"workers": workers, "batch": factor * batch}) for factor in (0.9, 1.1)
    ]

    assert at_best == pytest.approx(at_given)
    assert all((each > at_best).all() for each in nearby)
    closed = BestBatchLaw().predict_output(np.array([1e5 * 1e-3, 1e5 * 0.02 / 640]), {"workers": workers})
    assert at_best == pytest.approx(closed)
