"""Rows of the fidelity benchmark that run trials: fixed numbers of trials in turns, all of which count."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fidelity import catalogue, training, trial_cases
from benchmarks.fidelity.idle_trial import make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.rows import collectives, runs, scenarios
from benchmarks.fidelity.trial_cases import MeasuredCase, TrialCase, TrialRow, TrialSample
from compose.engines.simulated import SimulatedEngine
from compose.runs.run import check_host_capacity
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import AUTO
from services.schema.errors import HostError

FAILED = TrialSample[Any](None, "failed: slow links")
SIMULATED: Any = SimulatedEngine()  # only plans are made with it; passed where rows expect engine docker


class CountingEngine(SimulatedEngine):
    """Engine whose trials end at once. It records the strategies of the trials that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def run_trial(self, plan: Any, trial_folder: Path, observer: object) -> TrialOutcome:
        """Fail the second trial of all."""
        self.ran.append(plan.label)
        if len(self.ran) == 2:
            raise HostError("slow links")
        return TrialOutcome(trial=plan.trial, engine="simulated", status="success")


def make_case(engine: SimulatedEngine, strategy_label: str, values: Iterator[float]) -> TrialCase[float]:
    """Return a case whose trials have these values."""
    trial = make_trial(
        {"workers": 2, "worker": {"throughput": "100/s"}}, strategies={strategy_label: {"kind": "all_reduce"}}
    )
    return TrialCase(strategy_label, trial, engine, lambda *_: next(values))


def summarise_by_case(measured: Sequence[MeasuredCase[float]]) -> Iterator[FidelityMeasurement]:
    """Yield a measurement per case, with a wide gate."""
    for each in measured:
        gate = FidelityGate(median_off=1.0)
        yield trial_cases.measurement_of_trials(each.case.label, "s", 1.0, each.values, gate, [each])


def test_cases_run_equally_often_in_turns_and_every_trial_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that failed or is not valid is not run again, and does not end the row."""
    engine, reasons = CountingEngine(), iter(["", "busy host", "", "", ""])
    monkeypatch.setattr(trial_cases, "read_verdict_reasons", lambda _: next(reasons))
    values = iter([1.0, 1.1, 1.2, 1.3, 1.4])
    row = TrialRow(lambda _: [make_case(engine, label, values) for label in ("a", "b")], summarise_by_case)

    first, second = row.measure(SIMULATED)

    assert engine.ran == ["a", "b"] * trial_cases.TRIALS_PER_CASE
    assert (first.samples, first.trial_text, first.is_within_gate) == (
        (1.0, 1.1, 1.3),
        "2 of 3 valid: busy host",
        True,
    )
    assert (second.samples, second.trial_text, second.is_within_gate) == (
        (1.2, 1.4),
        "2 of 3 valid: failed: slow links",
        False,
    )


def test_the_estimate_of_a_row_counts_training_and_start_of_all_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trial_cases.TRIAL_OVERHEAD_S, "local", (5.0, 2.0))
    monkeypatch.setattr(CountingEngine, "name", "local")
    row = TrialRow(lambda _: [make_case(CountingEngine(), "a", cycle([1.0]))], summarise_by_case)
    (case,) = row.make_cases(SIMULATED)

    trial_s = case.plan.estimated_training_wall_s + 5.0 + 3 * 2.0  # a coordinator and two workers

    assert case.plan.estimated_training_wall_s > 0
    assert row.estimate_wall_s(SIMULATED) == pytest.approx(trial_cases.TRIALS_PER_CASE * trial_s)


def measured_case(case: TrialCase[Any], *samples: Any) -> MeasuredCase[Any]:
    """Return a case with these samples; other values than samples are those of valid trials."""
    return MeasuredCase(case, tuple(each if isinstance(each, TrialSample) else TrialSample(each) for each in samples))


def make_collective_cases() -> list[TrialCase[float]]:
    """Return the cases of a row of collectives."""
    return collectives._make_cases("1gbit", collectives.MEGABYTE, SIMULATED)


def summarise_collectives(measured: Sequence[MeasuredCase[float]]) -> list[FidelityMeasurement]:
    """Return the measurements of a row of collectives."""
    return list(collectives._summarise_collectives("1gbit", collectives.MEGABYTE, measured))


def test_trials_have_the_dilation_that_users_get_from_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    checked_dilations = []

    def check(scenario: Any, engine: Any) -> Any:
        checked_dilations.append(scenario.dilation)
        return check_host_capacity(scenario, engine).model_copy(update={"dilation": 12.0})

    monkeypatch.setattr(trial_cases, "check_host_capacity", check)
    cases = make_collective_cases()

    assert checked_dilations == [AUTO] * len(cases)
    assert {case.plan.dilation for case in cases} == {12.0}
    line = summarise_collectives([measured_case(cases[0], 1.0)])[0]
    assert line.what == "1 MB at 1gbit, ring, 2 workers, dilation 12: step over closed form"


@pytest.mark.parametrize("row_name", [name for name, row in catalogue.BENCH_ROWS.items() if isinstance(row, TrialRow)])
def test_only_rows_that_compare_dilations_choose_their_own(monkeypatch: pytest.MonkeyPatch, row_name: str) -> None:
    monkeypatch.setattr(scenarios, "LocalEngine", SimulatedEngine)
    row: Any = catalogue.BENCH_ROWS[row_name]

    dilations = [case.trial.scenario.dilation for case in row.make_cases(SIMULATED)]

    assert dilations == {"dilation": [4, 8, 1, 2], "staleness": [4, 8]}.get(row_name, [AUTO] * len(dilations))


def test_each_collective_has_its_own_line_with_all_its_trials() -> None:
    cases = make_collective_cases()
    measured = [measured_case(case, 1.0, 1.02, 1.3) for case in cases]
    measured[3] = measured_case(cases[3], 1.0, TrialSample(1.0, "busy host"), FAILED)

    *lines, pairs, trials = summarise_collectives(measured)

    assert [line.samples for line in lines] == [case.values for case in measured]
    assert [index for index, line in enumerate(lines) if not line.is_within_gate] == [3]
    assert lines[3].trial_text == "1 of 3 valid: busy host; failed: slow links"
    assert (pairs.samples, pairs.is_within_gate) == ((0.0,), True)
    assert (trials.samples, trials.unit, trials.is_within_gate) == ((2.0,), "of 66", False)


def test_a_step_is_judged_only_by_a_closed_form_that_applies() -> None:
    cases = make_collective_cases()
    measured = [measured_case(case, 9.0) for case in cases]

    *lines, pairs, _ = summarise_collectives(measured)

    does_apply = [not case.plan.predicted.inapplicable_reason for case in cases]
    assert {True, False} == set(does_apply)
    assert [line.gate.has_limits for line in lines] == does_apply
    assert ["which does not apply: " not in line.what for line in lines] == does_apply
    assert pairs.median_achieved == 0  # all are nine times as slow, in the predicted order


def test_pairs_of_collectives_are_ranked_by_their_medians() -> None:
    ring, reduce_to_one = make_collective_cases()[:2]  # the closed form of the ring is half as long
    slow_ring = measured_case(ring, 1.0, 3.0, 3.0)

    def count_pairs(*measured: MeasuredCase[float]) -> float:
        return summarise_collectives(measured)[-2].median_achieved

    assert count_pairs(measured_case(ring, 1.0, 1.0, 3.0), measured_case(reduce_to_one, 1.0)) == 0
    assert count_pairs(slow_ring, measured_case(reduce_to_one, 1.0)) == 1
    assert count_pairs(slow_ring, measured_case(reduce_to_one, FAILED)) == 0


def test_engines_are_compared_trial_by_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round in which one of the engines failed has no ratio of both, but still a ratio of the other engine."""
    monkeypatch.setattr(scenarios, "LocalEngine", SimulatedEngine)
    cases = scenarios._make_engine_cases("racks", SIMULATED)
    samples = cycle([(1.05, FAILED, 1.1), (1.0, 1.0, 1.0)])

    on_docker, on_local, both = scenarios._compare_engines(
        "racks", [measured_case(case, *next(samples)) for case in cases]
    )

    assert len(cases) == 2 * 4
    assert on_docker.samples == (1.05, 1.1) * 4
    assert on_local.samples == (1.0,) * 12
    assert both.samples == pytest.approx((1.05, 1.1) * 4)
    assert (on_docker.failed_trials, on_local.failed_trials, both.failed_trials) == (4, 0, 4)


def test_staleness_is_compared_over_the_pairs_of_trials_that_succeeded() -> None:
    single, double = runs._make_asp_cases(SIMULATED)
    one, other = runs.DilatedSteps(1.0, Counter({0: 3, 1: 1})), runs.DilatedSteps(1.1, Counter({0: 2, 1: 2}))

    step, pooled, pairs = runs._summarise_asp(
        [measured_case(single, one, one, FAILED), measured_case(double, other, FAILED, other)]
    )
    failed_only = list(runs._summarise_asp([measured_case(single, FAILED), measured_case(double, other)]))

    assert step.samples == (1.1,)
    assert pooled.samples == pairs.samples == (25.0,)
    assert "of 4 in all" in pooled.what
    assert [line.samples for line in failed_only] == [()] * 3


def test_a_start_that_fails_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = iter([10.0, None, 12.0, 14.0])

    def start(*_: object) -> float:
        if (seconds := next(attempts)) is None:
            raise HostError("slow links")
        return seconds

    monkeypatch.setattr(runs, "_measure_start_time_s", start)

    star, racks = runs.measure_start(SIMULATED, 2)

    assert (star.samples, star.trial_text) == ((10.0, 12.0), "2 of 2 valid")
    assert (racks.samples, racks.trial_text, racks.is_within_gate) == (
        (14.0,),
        "1 of 2 valid: failed: slow links",
        False,
    )


def test_ranks_that_alternate_between_early_and_late_have_the_common_step_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks of a ring can alternate for ever: the median step of each is 10 or 12 s, but all take 10 s per step."""
    rows = [
        {"step": step, "start_s": 10.0 * step + early, "step_s": 10.0 + after - early}
        for step in range(4)
        for early, after in ((2.0 * (step % 2), 2.0 * (1 - step % 2)), (2.0 * (1 - step % 2), 2.0 * (step % 2)))
    ]
    monkeypatch.setattr(training, "read_steps", lambda *_: rows)

    assert training.synchronous_step_s(Path(), None) == 10.0  # type: ignore[arg-type]


def test_the_benchmark_reads_the_same_verdict_reasons_as_reports() -> None:
    trial = make_trial({"workers": 2, "worker": {"throughput": "100/s"}})

    with closing(SimulatedEngine()) as engine, training.run_trial(engine, make_trial_plan(trial, engine)) as folder:
        assert training.read_verdict_reasons(folder) == ""
        (folder / "logs" / "worker-0.log").write_text("")
        assert "worker-0" in training.read_verdict_reasons(folder)
