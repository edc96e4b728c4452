"""Trials beside reference convergence points: which reference applies, and what may be said about the samples."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.convergence.compare import ReferenceComparison, ReferenceOutcome, compare_trial_with_reference
from analysis.convergence.reference_points import (
    MIN_SEEDS,
    ConvergenceWorkload,
    MeasuredOn,
    ReferencePoint,
    ReferenceWorkload,
    read_reference_file,
    shipped_references,
    write_reference_file,
)
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_table import TrialLogTables
from analysis.report.summary_text import summary_sentences
from analysis.report.tables.reference_table import make_reference_table, reference_warning
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult
from benchmarks.convergence.catalogue import REFERENCE_CASES, convergence_workload
from benchmarks.convergence.single_worker import samples_to_target_of_one_worker
from services.cluster.addresses import DummyAddresses
from services.plan import make_plan
from services.scenario.scenario import Scenario
from services.scenario.workload import BatchScaling, Workload

WORKLOAD: dict[str, Any] = {
    "dataset": {"kind": "digits"},
    "model": {"kind": "mlp", "hidden": [16]},
    "optimiser": {"kind": "sgd", "rate": 0.1},
    "target": {"metric": "accuracy", "at_least": 0.9},
    "precision": "fp32",
    "evaluate_every": 1438,
}
MEASURED = MeasuredOn(machine="m", commit="c", date="2026-01-01", versions={})
RUNS = {64: [5000, 5200, 4900, 5400, 5100], 128: [9000, 9200, 8900, 9400, 9100]}


def reference_of(runs: dict[int, list[int | None]] | None = None, **workload: Any) -> ReferenceWorkload:
    points = tuple(
        ReferencePoint(batch=batch, samples_by_seed={1001 + n: value for n, value in enumerate(values)})
        for batch, values in (runs or RUNS).items()
    )
    return ReferenceWorkload(
        name="quick",
        workload=ConvergenceWorkload.model_validate(WORKLOAD | {"evaluate_every": 100} | workload),
        budget_samples=100_000,
        points=points,
        measured=MEASURED,
    )


def plan_of(batch: int, **plan_keys: Any) -> TrialPlan:
    keys = WORKLOAD | {"evaluate_every": 100, "workers": 2} | plan_keys
    optimiser = keys.pop("optimiser")
    return TrialPlan.model_validate(
        {"trial": "t", "label": "ring", "batch": batch, "workload_optimiser": optimiser, **keys}
    )


def compare(batch: int, samples: int | None, *references: ReferenceWorkload, **workload: Any) -> ReferenceComparison:
    found = compare_trial_with_reference(plan_of(batch, **workload), samples, references or (reference_of(),))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("samples", "outcome"),
    [(5100, ReferenceOutcome.WITHIN), (4200, ReferenceOutcome.FEWER), (6000, ReferenceOutcome.MORE)],
)
def test_samples_are_compared_with_the_point_of_the_same_batch(samples: int, outcome: ReferenceOutcome) -> None:
    found = compare(64, samples)

    assert (found.workload, found.batch, found.outcome, found.runs) == ("quick", 64, outcome, 5)
    assert found.mean == pytest.approx(5120)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 5120 < found.high
    assert not found.is_interpolated


def test_a_batch_between_two_points_is_compared_with_their_interpolation() -> None:
    """Half way between batches 64 and 128 the mean is half way, too."""
    found = compare(96, 7100)

    assert found.is_interpolated
    assert (found.mean, found.outcome) == (pytest.approx(7120), ReferenceOutcome.WITHIN)


@pytest.mark.parametrize(
    ("batch", "samples", "runs", "reason"),
    [
        (32, 5000, RUNS, "batch 32 is outside of the batches of the reference, 64 to 128"),
        (256, 5000, RUNS, "batch 256 is outside"),
        (64, None, RUNS, "the trial missed its target"),
        (64, 5000, {64: [5000, None, 5000]}, "1 of 3 reference runs with batch 64 missed the target"),
        (96, 5000, {64: [5000, 5100], 128: [None, 9000]}, "1 of 2 reference runs with batch 128 missed the target"),
        (64, 5000, {64: [5000]}, "the reference has a single run with batch 64"),
    ],
)
def test_a_trial_without_a_usable_point_is_not_compared(
    batch: int, samples: int | None, runs: dict[int, list[int | None]], reason: str
) -> None:
    """A guess would be read as a verdict."""
    found = compare(batch, samples, reference_of(runs))

    assert found.outcome == ReferenceOutcome.NOT_COMPARED
    assert reason in found.reason
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(
    "other",
    [
        {"model": {"kind": "mlp", "hidden": [17]}},
        {"optimiser": {"kind": "sgd", "rate": 0.2}},
        {"target": {"metric": "accuracy", "at_least": 0.91}},
        {"target": {"metric": "loss", "at_most": 0.5}},
        {"precision": "fp64"},
        {"dataset": {"kind": "digits", "test_fraction": 0.4}},
    ],
)
def test_another_workload_has_no_reference(other: dict[str, Any]) -> None:
    """Another learning rate alone changes the samples by more than any bug would."""
    assert compare_trial_with_reference(plan_of(64, **other), 5000, [reference_of()]) is None


def test_a_trial_without_a_target_or_of_another_version_has_no_reference() -> None:
    """Plans of earlier versions do not contain the declared optimiser."""
    without_target = plan_of(64).model_copy(update={"target": None})
    older = plan_of(64).model_copy(update={"workload_optimiser": {}})

    assert compare_trial_with_reference(without_target, 5000, [reference_of()]) is None
    assert compare_trial_with_reference(older, 5000, [reference_of()]) is None


def test_other_evaluations_are_not_comparable_and_the_reason_is_stated() -> None:
    """Samples are rounded up to the next evaluation, so a trial that is evaluated more often needs fewer."""
    found = compare(64, 4200, evaluate_every=500)

    assert found.outcome == ReferenceOutcome.NOT_COMPARED
    assert found.reason == "evaluate_every is 500, and 100 in the reference points of quick"


SCHEDULE = {"kind": "cosine", "warmup": 0.1, "warmup_start": 0.0, "final": 0.0}
SCHEDULE_TEXT = "{kind: cosine, warmup: 0.1, warmup_start: 0.0, final: 0.0}"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            {"rate_schedule": SCHEDULE, "epochs": 4, "train_samples": 1438},
            f"schedule is {SCHEDULE_TEXT}, and {{kind: constant}} in the reference points of quick",
        ),
        ({"clip_norm": 1.0}, "clip_norm is 1.0, and not declared in the reference points of quick"),
        (
            {"partition": {"kind": "dirichlet", "alpha": 0.1, "seed": 0}},
            "partition is {kind: dirichlet, seed: 0, alpha: 0.1}, and {kind: iid} in the reference points of quick",
        ),
        (
            {"order": {"kind": "shuffled_blocks", "block": 64}},
            "order is {kind: shuffled_blocks, block: 64}, and {kind: shuffled} in the reference points of quick",
        ),
        (
            {"batch_rate_factor": 2.0},
            "batch_scaling multiplies the learning rate by 2, and by 1 in the reference points of quick with batch 64",
        ),
    ],
)
def test_a_trial_with_other_training_settings_is_not_compared_and_the_reason_is_stated(
    other: dict[str, Any], reason: str
) -> None:
    """Each of these settings changes the samples to target; a trial with them would look like a bug, or hide one."""
    found = compare(64, 3000, **other)

    assert (found.outcome, found.reason) == (ReferenceOutcome.NOT_COMPARED, reason)
    assert (found.mean, found.low) == (None, None)


def test_a_schedule_is_another_one_with_another_budget() -> None:
    """A schedule is a function of the share of the budget: with twice the epochs, the rate falls half as fast."""
    reference = reference_of(schedule=SCHEDULE, schedule_samples=4 * 1438)
    keys = {"rate_schedule": SCHEDULE, "train_samples": 1438}

    assert compare(64, 5100, reference, **keys, epochs=4).outcome == ReferenceOutcome.WITHIN
    assert compare(64, 5100, reference, **keys, epochs=8).reason == (
        "the sample budget of the schedule is 11,504, and 5,752 in the reference points of quick"
    )


def test_the_budget_does_not_count_with_a_constant_learning_rate() -> None:
    assert compare(64, 5100, epochs=8, train_samples=1438).outcome == ReferenceOutcome.WITHIN


def test_one_worker_has_all_samples_with_every_partition() -> None:
    """The plan of a baseline contains the partition of the scenario, which has no effect on one worker."""
    assert (
        compare(64, 5100, partition={"kind": "shards", "per_worker": 2}, workers=1).outcome == ReferenceOutcome.WITHIN
    )


def test_the_factor_of_batch_scaling_counts_not_its_rule() -> None:
    """At the base batch all rules have the same learning rate; beyond it, each has its own."""
    scaled = reference_of().model_copy(update={"batch_scaling": BatchScaling(rule="sqrt", base_batch=64)})

    assert compare(64, 5100, scaled).outcome == ReferenceOutcome.WITHIN
    assert compare(128, 9100, scaled, batch_rate_factor=2**0.5).outcome == ReferenceOutcome.WITHIN
    assert compare(128, 9100, scaled, batch_rate_factor=2.0).outcome == ReferenceOutcome.NOT_COMPARED
    assert compare(128, 9100, scaled).reason == (
        "batch_scaling multiplies the learning rate by 1, and by 1.41421 in the reference points of quick with batch "
        "128"
    )


def test_the_settings_of_a_plan_reach_the_comparison() -> None:
    """A setting that a plan recorded under another key would be read as its default, and compared."""
    settings = {
        "schedule": SCHEDULE,
        "clip_norm": 2.0,
        "order": {"kind": "shuffled_blocks", "block": 128},
        "partition": {"kind": "sizes", "shares": [2, 1]},
        "batch_scaling": {"rule": "linear", "base_batch": 32},
    }
    document = {
        "name": "settings",
        "workload": {**WORKLOAD, **settings, "batch": 64, "epochs": 3},
        "cluster": {"workers": 2, "worker": {"throughput": "1000/s"}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "r", "simulated", DummyAddresses())
    view = TrialPlan.model_validate_json(plan.model_dump_json())
    workload = ConvergenceWorkload.model_validate(view.workload_parts)

    one_worker = convergence_workload(Workload.model_validate(document["workload"]))
    assert workload == one_worker.model_copy(update={"partition": plan.partition})
    assert plan.partition.kind == "sizes"
    assert workload.schedule_samples == 3 * 1438
    assert view.batch_rate_factor == 2.0


def test_left_out_defaults_are_the_same_workload() -> None:
    """The file keeps its meaning when a component gets a new key with a default."""
    plan = plan_of(64, model={"kind": "mlp", "hidden": [16], "activation": "relu"})

    assert compare_trial_with_reference(plan, 5100, [reference_of()]) is not None


def test_the_declared_learning_rate_counts_where_a_strategy_scales_it() -> None:
    """An asynchronous server takes 1/n of the rate per push, with the same sum of updates per sample."""
    document = {
        "name": "scaled",
        "workload": {**{key: value for key, value in WORKLOAD.items() if key != "evaluate_every"}, "batch": 64},
        "cluster": {"workers": 4, "worker": {"throughput": "1000/s"}},
        "strategies": {"asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "r", "simulated", DummyAddresses())
    view = TrialPlan.model_validate_json(plan.model_dump_json())

    assert plan.optimiser.rate == pytest.approx(0.1 / 4)
    assert compare_trial_with_reference(view, 5100, [reference_of(evaluate_every=1438)]) is not None


def test_the_file_keeps_all_points(tmp_path: Path) -> None:
    written = [reference_of({64: [5000, None]}), reference_of().model_copy(update={"name": "another"})]
    write_reference_file(tmp_path / "points.json", written)

    assert read_reference_file(tmp_path / "points.json") == (written[1], written[0])
    assert read_reference_file(tmp_path / "missing.json") == ()


def test_points_must_be_ordered_by_batch() -> None:
    """Interpolation looks at neighbours in the file."""
    with pytest.raises(ValueError, match="ascending order of distinct batches"):
        reference_of({128: [1, 2], 64: [1, 2]})


@pytest.fixture
def blank(make_trial: Callable[..., TrialLogTables]) -> TrialResult:
    return replace(measure_trial(make_trial({}), []), status="success", samples=9000, steps=10, seconds=2.0)


def trials_of(blank: TrialResult, strategy: str, samples: list[int | None], **reference: Any) -> list[TrialResult]:
    return [
        replace(
            blank,
            id=f"{strategy}-{seed}",
            strategy=strategy,
            seed=seed,
            workers=2,
            target="accuracy ≥ 0.9",
            samples_to_target=needed,
            time_to_target_s=None if needed is None else 1.0,
            samples_per_second=1000.0,
            reference=compare(64, needed, **reference) if needed else compare(64, None),
        )
        for seed, needed in enumerate(samples)
    ]


def summary_of(trials: list[TrialResult]) -> RunSummary:
    kinds = (VerdictLevel.VALID, "success", trials, [], [], "r", "", {}, [])
    return RunSummary(SUMMARY_SCHEMA, "s", "simulated", 1.0, *kinds)


def test_the_report_has_a_row_per_system_with_the_range_of_its_number_of_runs(blank: TrialResult) -> None:
    """The range of a mean of three is narrower than that of a single run."""
    three, one = trials_of(blank, "ring", [5100, 5000, 5300]), trials_of(blank, "asp", [7000])
    rows = make_reference_table(summary_of([*three, *one]))

    assert [(row.name, row.run_count, row.batch) for row in rows] == [("ring ×2", 3, 64), ("asp ×2", 1, 64)]
    assert [row.outcome for row in rows] == ["within the reference range", "more samples than the reference"]
    assert rows[0].samples == "5,133"
    assert rows[0].reference.startswith("5,120 [")
    assert three[0].reference is not None
    assert three[0].reference.low is not None
    low_of_mean = float(rows[0].reference.split("[")[1].split(",")[0] + rows[0].reference.split("[")[1].split(",")[1])
    assert low_of_mean > three[0].reference.low
    assert reference_warning(summary_of([*three, *one])) == ""


def test_significantly_fewer_samples_are_reported_as_a_possible_bug(blank: TrialResult) -> None:
    summary = summary_of(trials_of(blank, "cheat", [3000, 3100]) + trials_of(blank, "ring", [5100, 5000]))

    sentence = "cheat ×2 needs significantly fewer samples than the reference convergence point of the workload (Holm)"
    assert any(sentence in each.replace("Cheat", "cheat") for each in summary_sentences(summary))


def test_one_of_many_systems_just_below_its_range_is_no_bug(blank: TrialResult) -> None:
    """Of twenty unchanged systems one lies below its range by chance; p-values are adjusted for all systems."""
    low = compare(64, 5000).low
    assert low is not None
    suspicious = trials_of(blank, "s0", [int(low) - 20])
    others = [trial for n in range(1, 20) for trial in trials_of(blank, f"s{n}", [5100])]

    assert suspicious[0].reference is not None
    assert suspicious[0].reference.outcome == ReferenceOutcome.FEWER
    assert reference_warning(summary_of(suspicious)) != ""
    assert reference_warning(summary_of([*suspicious, *others])) == ""
    rows = make_reference_table(summary_of([*suspicious, *others]))
    assert [row.outcome for row in rows] == ["too close to call", *["within the reference range"] * 19]


def test_a_system_that_missed_the_target_is_not_compared(blank: TrialResult) -> None:
    """The mean of the other runs would be a selection of the fast ones."""
    (row,) = make_reference_table(summary_of(trials_of(blank, "ring", [3000, None])))

    assert row.outcome == "not compared: the target was missed in 1 of 2 runs"
    assert reference_warning(summary_of(trials_of(blank, "ring", [3000, None]))) == ""


def test_a_run_of_a_workload_without_reference_has_no_table(blank: TrialResult) -> None:
    trial = replace(blank, samples_to_target=10, time_to_target_s=1.0, target="accuracy ≥ 0.9")

    assert make_reference_table(summary_of([trial])) == ()
    assert group_trials([trial])


# --- the file of this package ---


def test_the_package_has_a_reference_for_every_workload_of_the_catalogue() -> None:
    """A changed scenario needs `make bench-convergence`, else its trials would silently not be compared."""
    by_name = {reference.name: reference for reference in shipped_references()}

    assert by_name.keys() == REFERENCE_CASES.keys()
    for name, case in REFERENCE_CASES.items():
        assert by_name[name].workload == convergence_workload(case.load_workload()), name
        assert by_name[name].batch_scaling == case.load_workload().batch_scaling, name
        assert tuple(point.batch for point in by_name[name].points) == case.batches, name


@pytest.mark.parametrize("reference", shipped_references(), ids=lambda reference: reference.name)
def test_points_of_the_package_have_enough_seeds_from_one_commit(reference: ReferenceWorkload) -> None:
    assert all(len(point.samples_by_seed) >= MIN_SEEDS for point in reference.points)
    assert "dirty" not in reference.measured.commit
    assert all(min(point.samples_by_seed) > 1000 for point in reference.points), "seeds of scenarios would be dependent"


@pytest.mark.parametrize("name", ["quickstart", "regression", "resnet-norm", "gpt-batch-scaling"])
def test_a_point_of_the_package_can_be_measured_again(name: str) -> None:
    """Other processors round differently, which may move the target by one evaluation."""
    reference = next(each for each in shipped_references() if each.name == name)
    point = reference.points[-2]
    seed, expected = next(iter(point.samples_by_seed.items()))
    assert expected is not None

    measured = samples_to_target_of_one_worker(REFERENCE_CASES[name].make_run_workload(point.batch), seed)

    assert measured == pytest.approx(expected, abs=reference.workload.evaluate_every)
