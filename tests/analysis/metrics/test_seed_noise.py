"""Whether strategies differ in quality by more than seeds do: four answers, each only where it is true."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.comparisons.seed_noise import SeedNoiseAnswer, compare_with_seed_noise
from analysis.reading.run_table import TrialLogTables
from analysis.report.evaluation_note import evaluation_note
from analysis.report.tables.regression_table import make_regression_table, seed_noise_sentence
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary, SkippedTrial
from analysis.results.trial_group import TrialGroup, group_trials
from analysis.results.trial_result import TrialResult

SEEDS = 10
NOISE = np.random.default_rng(0).normal(0.0, 0.02, (4, SEEDS))  # of R², by system and seed
SHARED = NOISE[0]  # the effect of a seed that all systems have in common


@pytest.fixture
def blank(make_trial: Callable[..., TrialLogTables]) -> TrialResult:
    """A finished trial without results."""
    return replace(measure_trial(make_trial({}), []), status="success", samples=1000, steps=10, seconds=2.0)


@pytest.fixture
def group_of(blank: TrialResult) -> Callable[..., TrialGroup]:
    """group_of("ring", [0.8, 0.81]) returns a group with these final R², one trial per seed."""

    def make(strategy: str, r2: Any, first_seed: int = 0, **changes: Any) -> TrialGroup:
        trials = (
            replace(
                blank,
                id=f"{strategy}-{seed}",
                strategy=strategy,
                seed=first_seed + seed,
                final={"mae": 0.3, "mse": 1 - value, "r2": value, "loss": 1 - value},
                **changes,
            )
            for seed, value in enumerate(map(float, r2))
        )
        (group,) = group_trials(trials)
        return group

    return make


def summary_of(*groups: TrialGroup, engine: str = "local", skipped: tuple[SkippedTrial, ...] = ()) -> RunSummary:
    trials = [trial for group in groups for trial in group.trials]
    kinds = (VerdictLevel.VALID, "success", trials, [], [], "r", "", {}, [])
    return RunSummary(SUMMARY_SCHEMA, "s", engine, 1.0, *kinds, skipped=list(skipped))


MakeGroup = Callable[..., TrialGroup]


def test_systems_with_the_same_results_per_seed_do_not_exceed_seed_noise(group_of: MakeGroup) -> None:
    """The same batches and initial parameters give the same model, whichever node sums the gradients."""
    groups = [group_of(name, 0.8 + SHARED + 1e-8 * NOISE[1]) for name in ("ring", "reduce_to_one", "one_cpu")]

    assert compare_with_seed_noise(groups, "r2").answer == SeedNoiseAnswer.NO
    assert "do not exceed seed noise" in seed_noise_sentence(summary_of(*groups))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_difference_of_several_standard_deviations_exceeds_seed_noise(group_of: MakeGroup, sign: int) -> None:
    """The sentence names the pair and the interval, with a positive size in either order."""
    groups = [group_of("ring", 0.8 + SHARED), group_of("stale", 0.8 + sign * 0.1 + SHARED + 0.1 * NOISE[1])]

    comparison = compare_with_seed_noise(groups, "r2")
    sentence = seed_noise_sentence(summary_of(*groups))

    assert comparison.answer == SeedNoiseAnswer.YES
    assert comparison.largest is not None
    assert comparison.largest.mean == pytest.approx(-sign * 0.1, abs=0.002)
    assert sentence.startswith("Yes, the differences of R²")
    assert "is 0.1" in sentence or "is 0.09" in sentence


def test_a_significant_difference_below_the_noise_is_no_yes(group_of: MakeGroup) -> None:
    """Pairing by seed finds a difference of half a standard deviation; a single run would not show it."""
    groups = [group_of("ring", 0.8 + SHARED), group_of("stale", 0.79 + SHARED + 0.01 * NOISE[1])]

    assert compare_with_seed_noise(groups, "r2").answer == SeedNoiseAnswer.NO


@pytest.mark.parametrize("shift", [0.015, 0.025])
def test_a_difference_about_as_large_as_the_noise_is_too_close_to_call(group_of: MakeGroup, shift: float) -> None:
    """With independent results per seed, ten seeds cannot distinguish one standard deviation from none or two."""
    groups = [group_of("ring", 0.8 + NOISE[0]), group_of("stale", 0.8 + shift + NOISE[1])]

    assert compare_with_seed_noise(groups, "r2").answer == SeedNoiseAnswer.TOO_CLOSE
    assert "too close to call" in seed_noise_sentence(summary_of(*groups))


def test_one_of_many_pairs_decides_a_yes_and_all_pairs_a_no(group_of: MakeGroup) -> None:
    """Two equal systems must not hide a third that differs."""
    equal = [group_of(name, 0.8 + SHARED) for name in ("ring", "reduce_to_one")]

    assert compare_with_seed_noise(equal, "r2").answer == SeedNoiseAnswer.NO
    differing = [*equal, group_of("stale", 0.6 + SHARED + 0.1 * NOISE[1])]
    assert compare_with_seed_noise(differing, "r2").answer == SeedNoiseAnswer.YES


@pytest.mark.parametrize("excess", [0.0, 1.0])
def test_a_yes_is_said_by_chance_in_at_most_one_run_of_twenty(group_of: MakeGroup, excess: float) -> None:
    """Also where the true difference equals the noise exactly, and with four systems instead of two."""
    rng, said = np.random.default_rng(1), 0
    for _ in range(200):
        values = rng.normal(0.8, 0.02, (4, SEEDS))
        values[0] += excess * 0.02
        groups = [group_of(f"s{number}", row) for number, row in enumerate(values)]
        said += compare_with_seed_noise(groups, "r2").answer == SeedNoiseAnswer.YES

    assert said <= 16  # 8 %: the noise is estimated from the same runs


def test_nothing_is_said_without_two_shared_seeds(group_of: MakeGroup) -> None:
    """The study that the scenario follows ran each system once; its differences could be those of seeds."""
    single = [group_of("ring", [0.54]), group_of("one_gpu", [0.85])]
    unpaired = [group_of("ring", 0.8 + SHARED), group_of("one_gpu", 0.8 + SHARED, first_seed=100)]

    for groups in (single, unpaired):
        assert compare_with_seed_noise(groups, "r2").answer == SeedNoiseAnswer.NOT_MEASURED
        assert "is not measured: two strategies share fewer than two seeds" in seed_noise_sentence(summary_of(*groups))


def test_nothing_is_said_about_different_numbers_of_samples(group_of: MakeGroup) -> None:
    """More training is a better model by itself."""
    groups = [group_of("ring", 0.8 + SHARED), group_of("stale", 0.5 + SHARED, samples=500)]

    assert "different numbers of samples" in seed_noise_sentence(summary_of(*groups))


@pytest.mark.parametrize("values", [[0.8, float("nan"), 0.8], [0.8, 0.8, 0.8]])
def test_nothing_is_said_without_finite_and_varying_values(group_of: MakeGroup, values: list[float]) -> None:
    """There is no noise to compare with."""
    groups = [group_of("ring", values), group_of("stale", [0.5, 0.5, 0.5])]

    assert compare_with_seed_noise(groups, "r2").answer == SeedNoiseAnswer.NOT_MEASURED


def test_nothing_is_said_where_training_stops_at_a_target_or_one_system_ran(group_of: MakeGroup) -> None:
    """At a target, all systems end with about the same quality."""
    reached = [group_of(name, 0.8 + SHARED, target="r2 ≥ 0.8") for name in ("ring", "stale")]

    assert seed_noise_sentence(summary_of(*reached)) == ""
    assert seed_noise_sentence(summary_of(group_of("ring", 0.8 + SHARED))) == ""


def test_the_table_has_means_and_intervals_of_every_system(group_of: MakeGroup) -> None:
    """Numbers can be checked by hand: 0.7, 0.8 and 0.9 have the mean 0.8 and the interval 0.8 ± 4.30·0.1/√3."""
    table = make_regression_table(summary_of(group_of("ring", [0.7, 0.8, 0.9], startup_s=3.0, workers=4)))

    assert table is not None
    (row,) = table.rows
    assert (row.name, row.run_count) == ("ring ×4", 3)
    assert row.startup == "3.00 [3.00, 3.00]"
    assert row.training == "2.00 [2.00, 2.00]"
    assert row.errors == ("0.300 [0.300, 0.300]", "0.200 [-0.0484, 0.448]", "0.800 [0.552, 1.05]")


def test_start_up_is_not_measured_in_virtual_time(group_of: MakeGroup) -> None:
    """A dash could be read as zero seconds."""
    for engine, text in (("simulated", "not measured: virtual time"), ("local", "not measured")):
        table = make_regression_table(summary_of(group_of("ring", [0.7, 0.8]), engine=engine))
        assert table is not None
        assert table.rows[0].startup == text


def test_a_system_that_this_host_cannot_run_has_one_row_with_the_reason(group_of: MakeGroup) -> None:
    """Ten skipped repeats are one system; an absent row could be read as a system that was not planned."""
    skipped = tuple(
        SkippedTrial(f"00{n}", "all_reduce", 1, "system one_gpu", "no GPU on this host (CuPy)") for n in range(2)
    )
    table = make_regression_table(summary_of(group_of("ring", [0.7, 0.8]), skipped=skipped))

    assert table is not None
    assert [row.name for row in table.rows] == ["ring ×1", "all_reduce ×1 · system one_gpu"]
    assert table.rows[1].skip_reason == "no GPU on this host (CuPy)"


def test_a_classification_has_no_table_of_regression_errors(blank: TrialResult) -> None:
    """An accuracy is no error of a regression."""
    (group,) = group_trials([replace(blank, final={"accuracy": 0.9, "loss": 0.3})])

    assert make_regression_table(summary_of(group)) is None
    assert make_regression_table(summary_of()) is None


def test_the_note_on_evaluations_states_the_coarsest_resolution(group_of: MakeGroup) -> None:
    """The target was reached at 500 of 1000 samples, evaluated every 100: a fifth of 10 s at most."""
    reached = {"target": "r2 ≥ 0.5", "time_to_target_s": 10.0, "samples_to_target": 500, "evaluations": 5}
    coarse = group_of("ring", [0.7], **reached, evaluation_samples=100, evaluation_seconds=0.5)
    fine = group_of("stale", [0.7], **reached | {"evaluations": 9}, evaluation_samples=50, evaluation_seconds=1.0)

    note = evaluation_note(summary_of(coarse, fine))

    assert "at evaluation 5 to 9" in note
    assert "20% or less (ring-0: about 2.00 s)" in note
    assert "Evaluations took 10.0% of the time to the target or less (stale-0: 1.00 s)" in note


def test_no_note_on_evaluations_is_made_without_a_reached_target(group_of: MakeGroup) -> None:
    """Without a target there is no time to round; a missed target has no time."""
    missed = group_of("ring", [0.7], target="r2 ≥ 0.9", status="missed_target")

    assert evaluation_note(summary_of(missed)) == evaluation_note(summary_of(group_of("ring", [0.7]))) == ""


def test_the_note_says_that_virtual_evaluations_take_no_time_only_if_they_do(group_of: MakeGroup) -> None:
    """Logs without the start of evaluations do not show how long they took."""
    reached = {"target": "r2 ≥ 0.5", "time_to_target_s": 10.0, "samples_to_target": 500, "evaluation_samples": 100}

    virtual, unlogged = (group_of("ring", [0.7], **reached, evaluation_seconds=seconds) for seconds in (0.0, None))

    assert "took no virtual time" in evaluation_note(summary_of(virtual))
    assert "Evaluations took" not in evaluation_note(summary_of(unlogged))


def test_note_and_table_name_the_model_on_which_the_target_is_decided(group_of: MakeGroup) -> None:
    """A time at which one worker reaches the target is no time of the common parameters beside it."""
    reached = {"target": "r2 ≥ 0.5", "time_to_target_s": 10.0, "samples_to_target": 500, "evaluation_samples": 100}
    models = {"ring": "shared", "gossip": "mean", "pairs": "worker_0_then_mean", "ad_psgd": "worker_0_then_mean"}
    groups = [group_of(name, [0.7], **reached, evaluated_model=model) for name, model in models.items()]

    note = evaluation_note(summary_of(*groups))
    times = {row.group.strategy: row.time for row in make_strategy_table(summary_of(*groups)).rows}

    assert "For gossip, the target is checked with the mean" in note
    assert "For pairs and ad_psgd, the target is checked with the parameters of worker-0" in note
    assert "checked with" not in evaluation_note(summary_of(groups[0]))
    assert {name: "(model of worker-0)" in text for name, text in times.items()} == {
        name: model.startswith("worker_0") for name, model in models.items()
    }


def test_a_time_for_the_same_samples_does_not_depend_on_the_evaluated_model(group_of: MakeGroup) -> None:
    group = group_of("pairs", [0.7], samples_per_second=10.0, evaluated_model="worker_0_then_mean")

    (row,) = make_strategy_table(summary_of(group)).rows

    assert "worker-0" not in row.time
