"""Link rate up to which compression pays: interpolation, prediction, and when no rate may be stated."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.comparisons.rate_crossings import CrossingStatus, find_rate_crossings, pair_with_uncompressed
from analysis.reading.run_table import TrialLogTables
from analysis.report.findings.crossing_finding import describe_rate_crossings, format_rate
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_group import TrialGroup, group_trials
from analysis.results.trial_result import TrialResult

RATES = ("10mbit", "100mbit", "300mbit", "1gbit", "3gbit")
BPS = {"10mbit": 1e7, "100mbit": 1e8, "300mbit": 3e8, "600mbit": 6e8, "1gbit": 1e9, "3gbit": 3e9}
STEP_BITS = {"ring": 10e6, "sparse": 1e6}  # of an exchange
COMPUTE_S = 0.08
NOISE = (0.99, 1.0, 1.01, 1.005, 0.995)  # by seed
PAIRS = {"sparse": "ring"}
Runs = Callable[..., list[TrialResult]]


@pytest.fixture
def runs(make_trial: Callable[..., TrialLogTables]) -> Runs:
    """Return trials of a ring and of a sparse strategy that needs 1.2 times the samples, at each rate."""
    blank = measure_trial(make_trial({}), [])

    def run(
        rates: Sequence[str] = RATES,
        noise: Sequence[float] = NOISE,
        samples: dict[str, int] | None = None,
        **changes: Any,
    ) -> list[TrialResult]:
        trials = []
        for strategy, count in (samples or {"ring": 10_000, "sparse": 12_000}).items():
            for rate in rates:
                step_s = COMPUTE_S + STEP_BITS[strategy] / BPS[rate]
                for seed, factor in enumerate(noise):
                    used = round(count * (factor if strategy == "sparse" else 1))
                    trials.append(
                        replace(
                            blank,
                            **{
                                "id": f"{strategy}-{rate}-{seed}",
                                "strategy": strategy,
                                "workers": 8,
                                "seed": seed,
                                "repeat": seed,
                                "labels": {"workers": 8, "link": rate},
                                "condition": f"link {rate}",
                                "status": "success",
                                "samples": used,
                                "samples_per_second": 100 / step_s,
                                "predicted_samples_per_second": 100 / step_s,
                                "time_to_target_s": used * step_s / 100,
                                "samples_to_target": used,
                                "evaluation_samples": 10,
                                "target": "accuracy ≥ 0.93",
                            }
                            | changes,
                        )
                    )
        return trials

    return run


def groups(trials: list[TrialResult]) -> Sequence[TrialGroup]:
    return group_trials(trials)


def sentences(trials: list[TrialResult], pairs: dict[str, str] | None = None) -> list[str]:
    crossings = find_rate_crossings(groups(trials), PAIRS if pairs is None else pairs)
    kinds: tuple[Any, ...] = (VerdictLevel.VALID, "success", trials, [], [], "run", "", {}, [])
    return describe_rate_crossings(RunSummary(SUMMARY_SCHEMA, "s", "simulated", 1.0, *kinds, rate_crossings=crossings))


def true_crossing_bps(more_samples: float) -> float:
    """Return the rate at which (c + B/r) = more_samples·(c + b/r)."""
    return (STEP_BITS["ring"] - more_samples * STEP_BITS["sparse"]) / ((more_samples - 1) * COMPUTE_S)


def test_predicted_crossing_is_that_of_the_closed_forms_between_any_two_rates(runs: Runs) -> None:
    """Closed forms are linear in the reciprocal of the rate, so interpolation over it has no error."""
    for rates in (RATES, ("10mbit", "3gbit")):
        (crossing,) = find_rate_crossings(groups(runs(rates, samples={"ring": 10_000, "sparse": 12_000})), PAIRS)

        assert crossing.predicted_bps == pytest.approx(true_crossing_bps(1.2), rel=0.005)


def test_measured_crossing_is_within_a_factor_of_the_true_one_and_between_its_bracket(runs: Runs) -> None:
    """Interpolation over logarithms is not exact, so rates must be near each other."""
    (crossing,) = find_rate_crossings(groups(runs()), PAIRS)

    assert crossing.status == CrossingStatus.MEASURED
    assert crossing.bracket_bps == (3e8, 1e9)
    assert crossing.rate_bps == pytest.approx(true_crossing_bps(1.2), rel=0.2)
    assert crossing.predicted_to_measured == pytest.approx(1, rel=0.2)
    assert not crossing.reason


def test_sentence_states_both_rates_the_target_and_the_bracket(runs: Runs) -> None:
    (text,) = sentences(runs())

    assert text.startswith(
        "sparse reaches accuracy ≥ 0.93 sooner than ring up to a link rate of 632mbit (interpolated; "
    )
    assert "significantly faster at 300mbit, slower at 1gbit" in text
    assert f"predicted from closed forms and samples to the target: {format_rate(true_crossing_bps(1.2))[:2]}" in text


@pytest.mark.parametrize(
    ("rates", "reason"),
    [(("10mbit", "100mbit"), "faster at every swept rate"), (("1gbit", "3gbit"), "slower at every swept rate")],
)
def test_no_rate_is_stated_without_a_bracket(runs: Runs, rates: Sequence[str], reason: str) -> None:
    """An extrapolated rate would not be measured."""
    (text,) = sentences(runs(rates))

    assert text.startswith("the link rate up to which compression is faster than ring is not between the swept rates")
    assert text.endswith(f"for sparse: {reason}")


def test_no_rate_is_stated_where_the_repeats_vary_too_much(runs: Runs) -> None:
    """The means cross between the same rates, but at no rate above is the strategy significantly slower."""
    (text,) = sentences(runs(noise=(0.7, 1.0, 1.4, 1.2, 0.85)))

    assert text == "the link rate up to which compression is faster than ring is too close to call for sparse"


def test_faster_at_every_rate_needs_a_significant_difference_at_every_rate(runs: Runs) -> None:
    """At 3gbit, the exchange takes so little time that the difference is within the spread of the repeats."""
    noise = (0.95, 1.0, 1.05, 1.04, 0.96)
    (text,) = sentences(runs(("10mbit", "100mbit", "3gbit"), noise, samples={"ring": 10_000, "sparse": 10_000}))

    assert text == "the link rate up to which compression is faster than ring is too close to call for sparse"


def test_slower_at_every_rate_needs_a_significant_difference_at_every_rate(runs: Runs) -> None:
    """Near the crossing, the ratio varies around 1."""
    near_crossing = runs(("600mbit", "1gbit", "3gbit"), noise=(0.97, 1.0, 1.03, 1.02, 0.98))
    assert find_rate_crossings(groups(near_crossing), PAIRS)[0].status == CrossingStatus.TOO_CLOSE

    (text,) = sentences(near_crossing)

    assert "slower at every swept rate" not in text


def test_slower_on_slow_and_faster_on_fast_links_needs_a_significant_difference_on_both_sides(runs: Runs) -> None:
    (text,) = sentences(runs(noise=(0.7, 1.0, 1.4, 1.2, 0.85)), {"ring": "sparse"})

    assert text == "the link rate up to which compression is faster than sparse is too close to call for ring"


def test_p_values_are_adjusted_for_all_strategies_and_rates(runs: Runs) -> None:
    """The difference at 1gbit is significant among two comparisons, but not among eighteen."""
    noise = (0.95, 1.0, 1.06, 1.04, 0.96)
    alone = runs(("10mbit", "1gbit"), noise)
    copies = [f"sparse {number}" for number in range(9)]
    many = [replace(trial, id=f"{name} {trial.id}", strategy=name) for name in copies for trial in alone[10:]]

    (crossing,) = find_rate_crossings(groups(alone), PAIRS)
    of_many = find_rate_crossings(groups([*alone[:10], *many]), dict.fromkeys(copies, "ring"))

    assert crossing.status == CrossingStatus.MEASURED
    assert [each.status for each in of_many] == [CrossingStatus.TOO_CLOSE] * len(copies)


def test_no_rate_is_stated_without_repeats(runs: Runs) -> None:
    """A single run has no interval."""
    (text,) = sentences(runs(noise=(1.0,)))

    assert "is not measured for sparse: not every rate has two repeats" in text


def test_no_rate_is_stated_if_a_repeat_misses_the_target(runs: Runs) -> None:
    """The time of such a repeat is not known."""
    trials = runs()
    missed = replace(trials[-1], status="missed_target", time_to_target_s=None, samples_to_target=None)

    (text,) = sentences([*trials[:-1], missed])

    assert "is not measured for sparse: not every rate has two repeats that reach the target" in text


def test_strategy_that_is_slower_on_slow_links_and_faster_on_fast_ones_has_no_such_rate(runs: Runs) -> None:
    """Up to no rate is it faster."""
    (text,) = sentences(runs(), {"ring": "sparse"})

    assert text.endswith("is not between the swept rates for ring: slower on slow links, and faster on fast ones")


def test_no_sentence_without_a_swept_rate_or_without_an_uncompressed_strategy(runs: Runs) -> None:
    """There is nothing to compare."""
    trials = runs()
    unswept = [replace(trial, labels={"workers": 8}, condition="") for trial in runs(("1gbit",))]
    other_key = [
        replace(trial, labels={"workers": 8, "delay": index % 2}, condition=f"delay {index % 2}")
        for index, trial in enumerate(trials)
    ]

    assert sentences(trials, {}) == []
    assert sentences([trial for trial in trials if trial.strategy == "sparse"]) == []
    assert sentences(unswept) == []
    assert sentences(other_key) == []


def test_other_swept_values_and_numbers_of_workers_have_crossings_of_their_own(runs: Runs) -> None:
    """A crossing is between rates, all else equal."""
    trials = [
        replace(
            trial,
            id=f"{trial.id}-{delay}",
            labels={**trial.labels, "delay": delay},
            condition=f"delay {delay}, {trial.condition}",
        )
        for delay in ("1ms", "5ms")
        for trial in runs()
    ]

    found = find_rate_crossings(groups(trials), PAIRS)

    assert [crossing.condition for crossing in found] == ["delay 1ms", "delay 5ms"]
    assert {crossing.status for crossing in found} == {CrossingStatus.MEASURED}


def test_crossings_without_a_target_are_of_the_time_per_sample(runs: Runs) -> None:
    """Then the number of samples does not matter, so fewer bytes are always faster."""
    (text,) = sentences(runs(time_to_target_s=None, samples_to_target=None, target=None, seconds=1.0))

    assert "is not between the swept rates for sparse: faster at every swept rate" in text


class PlannedStrategy:
    """Fields of a plan from which strategies are paired."""

    def __init__(self, label: str, *, baseline: bool = False, **strategy: Any) -> None:
        self.label, self.baseline, self.strategy = label, baseline, strategy


def test_compressed_strategies_are_paired_with_the_same_strategy_without_compression() -> None:
    """A ring is not the counterpart of compressed pushes to servers, nor of another period."""
    identity, fp16 = {"kind": "identity"}, {"kind": "fp16"}
    plans: list[Any] = [
        PlannedStrategy("one", baseline=True, kind="none"),
        PlannedStrategy("ring", kind="all_reduce", compress=identity),
        PlannedStrategy("half", kind="all_reduce", compress=fp16),
        PlannedStrategy("ps", kind="parameter_server", compress=identity, compress_replies=identity),
        PlannedStrategy("half replies", kind="parameter_server", compress=identity, compress_replies=fp16),
        PlannedStrategy("local", kind="local_sgd", period=2, compress=fp16),
    ]

    assert pair_with_uncompressed(plans) == {"half": "ring", "half replies": "ps"}


@pytest.mark.parametrize(
    ("rate_bps", "text"), [(587654321, "588mbit"), (1.2e9, "1.2gbit"), (1e7, "10mbit"), (999.9e6, "1gbit")]
)
def test_rates_have_three_digits_in_the_notation_of_scenarios(rate_bps: float, text: str) -> None:
    assert format_rate(rate_bps) == text
