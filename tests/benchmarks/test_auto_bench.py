"""Benchmark of strategy `auto`: every permitted candidate is a competitor, and the gate counts all cases."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.auto.bench import MeasurementState, main, measure_case
from benchmarks.auto.cases import CASES, AutoCase, link
from benchmarks.auto.results_page import RESULTS_PAGE, MeasuredCase, describe_outcome, render_page
from services.plan import StrategyChoice
from services.plan.candidates.strategy_choice import CandidateRecord
from services.strategies import AllReduce


def measured(*ratios: float) -> list[MeasuredCase]:
    record = CandidateRecord(name="all_reduce", strategy=AllReduce(), quality="exact", predicted_step_s=1.0)
    choice = StrategyChoice.by_prediction("exact", 3, 20, 0.25, (record, record))
    return [MeasuredCase(CASES[0], choice, 0, ratio, {0: 2.0, 1: 1.0}) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "is_met"),
    [
        ([1.0] * 16 + [1.4] * 4, True),
        ([1.0] * 15 + [1.11] * 5, False),
        ([1.0] * 19 + [1.51], False),
    ],
)
def test_the_gate_needs_four_of_five_close_choices_and_no_bad_one(ratios: Sequence[float], is_met: bool) -> None:
    outcome = describe_outcome(measured(*ratios))

    assert outcome.is_gate_met == is_met
    assert outcome.lines[-1].endswith("met" if is_met else "missed")
    assert f"worst ratio {max(ratios):.3f}" in outcome.lines[0]
    assert "in 0 of 20 cases, worst ratio 2.000" in outcome.lines[1]  # without probes


def test_there_are_20_different_cases() -> None:
    assert len(CASES) == len({case.name for case in CASES}) == len({case.seed for case in CASES}) == 20
    assert {case.guard for case in CASES} == {"exact", "rounded", "lossy"}


def test_the_chosen_strategy_is_compared_with_every_possible_candidate() -> None:
    """A choice that is compared only with probed candidates would always be good."""
    case = AutoCase("small", "exact", 2, {"throughput": "400/s", **link("20mbit", "1ms")}, (16,), servers=1)

    result = measure_case(case)

    assert [*result.step_s] == [
        number for number, each in enumerate(result.choice.candidates) if not each.impossible_reason
    ]
    assert len(result.step_s) > 10
    assert result.choice.is_final
    assert result.chosen_step_s == result.step_s[result.choice.chosen]
    assert result.ratio >= 1


def test_the_page_needs_all_cases_of_one_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "jitter", "--write"]) == 2
    assert main(["--cases", "unknown"]) == 2
    assert "unknown case unknown; cases are lab-exact, " in capsys.readouterr().err


def test_the_page_names_cluster_model_and_seed_of_each_case() -> None:
    page = render_page(measured(1.25), "abc1234")

    assert "| lab-exact | exact | 2 | 0 | all_reduce | 1,250 | all_reduce | 1,000 | 1.250 | 2.000 |" in page
    assert "- `lab-exact`: 4 workers (throughput 400/s, uplink 20mbit, downlink 20mbit, delay 100us); layers" in page
    assert page.count("commit abc1234") == 1


def test_an_interrupted_measurement_goes_on_with_the_missing_cases(tmp_path: Path) -> None:
    """All cases take minutes; cases of another commit do not count."""
    [case] = measured(1.25)
    MeasurementState(tmp_path / "auto.json", "abc1234").save_case(case)

    same, other = (MeasurementState(tmp_path / "auto.json", commit) for commit in ("abc1234", "1234abc"))
    assert same.read_case(case.case) == case
    assert same.read_case(CASES[1]) is None
    assert other.read_case(case.case) is None


def test_the_results_page_has_all_cases() -> None:
    """A case that is left out could be one with a bad choice."""
    page = RESULTS_PAGE.read_text()

    assert [case.name for case in CASES if f"| {case.name} | {case.guard} |" not in page] == []
