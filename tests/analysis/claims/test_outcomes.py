"""Outcomes of the claims of a study: when each of them is printed, and when it must not be."""

from typing import Any

import numpy as np
import pytest

from analysis.claims.outcomes import Claim, ClaimOutcome, check_claims
from analysis.claims.scaling import LossFactors, MeasuredScaling
from analysis.claims.sentences import describe_claim
from analysis.statistics.intervals import percentile_interval

FASTER, BALANCE, LOSS = Claim
CONFIRMED, CONTRADICTED, CLOSE, UNTESTABLE = ClaimOutcome
DRAWS = 2000


def scaling_of(
    times: list[float],
    worker_counts: tuple[int, ...] = (1, 4, 16),
    spread: float = 0.02,
    statistical: float = 1.0,
    base: tuple[int, float] | None = None,
    **changes: Any,
) -> MeasuredScaling:
    """Times on 1, 4 and 16 workers whose means are known to `spread`; `base` is another run than the first."""
    base_count, base_time = base or (worker_counts[0], times[0])
    noise = np.exp(spread * np.random.default_rng(0).standard_normal((DRAWS, len(times) + 2)))
    drawn_times = np.array(times) * noise[:, :-2]
    drawn_base = (base_time * noise[:, -2:-1]) if base else drawn_times[:, :1]
    relative_counts = np.array(worker_counts) / base_count
    drawn_statistical = statistical * noise[:, -1]
    ratio = drawn_times[:, 0] / drawn_times[:, -1] * worker_counts[0] / worker_counts[-1]
    fields: dict[str, Any] = {
        "name": "ring",
        "worker_counts": worker_counts,
        "base_worker_count": base_count,
        "times": tuple(times),
        "time_intervals": tuple((0.9 * each, 1.1 * each) for each in times),
        "speedups": base_time / np.array(times),
        "efficiency_intervals": tuple(map(percentile_interval, (drawn_base / drawn_times / relative_counts).T)),
        "drawn_speedups": drawn_base / drawn_times,
        "speedup_ratio_interval": percentile_interval(drawn_times[:, 0] / drawn_times[:, -1]),
        "loss_factors": LossFactors(statistical, ratio / drawn_statistical, drawn_statistical),
    }
    return MeasuredScaling(**(fields | changes))


# Times on 1, 4 and 16 workers with the outcome of each claim: faster but less efficient, balance point, hardware loss.
OUTCOMES: dict[str, tuple[MeasuredScaling, tuple[ClaimOutcome, ClaimOutcome, ClaimOutcome]]] = {
    "time and efficiency fall": (scaling_of([16, 6, 3.2]), (CONFIRMED, CONFIRMED, CONFIRMED)),
    "the time grows": (scaling_of([16, 20, 40]), (CONTRADICTED, CONTRADICTED, CONFIRMED)),
    "the time is the same": (scaling_of([16, 16, 16]), (CLOSE, CONTRADICTED, CONFIRMED)),
    "the efficiency rises": (scaling_of([16, 3.5, 0.8]), (CONTRADICTED, UNTESTABLE, UNTESTABLE)),
    "the efficiency stays": (scaling_of([16, 4, 1]), (CLOSE, UNTESTABLE, CLOSE)),
    "the efficiency falls, but stays above the limit": (scaling_of([16, 5, 1.6]), (CONFIRMED, UNTESTABLE, CONFIRMED)),
    "the limit may be reached on the most workers": (scaling_of([16, 5, 2.0]), (CONFIRMED, CLOSE, CONFIRMED)),
    "the smallest larger size may be below the limit": (scaling_of([16, 8, 4]), (CONFIRMED, CLOSE, CONFIRMED)),
    "intervals are wide": (scaling_of([16, 12, 10], spread=0.3), (CLOSE, CLOSE, CONFIRMED)),
    "more samples are needed": (scaling_of([16, 6, 3.2], statistical=0.35), (CONFIRMED, CONFIRMED, CONTRADICTED)),
    "half of the loss is hardware": (scaling_of([16, 6, 3.2], statistical=0.56), (CONFIRMED, CONFIRMED, CLOSE)),
    "fewer samples are needed": (scaling_of([16, 6, 3.2], statistical=1.2), (CONFIRMED, CONFIRMED, CONFIRMED)),
    "two numbers of workers": (scaling_of([16, 3.2], (1, 16)), (UNTESTABLE, UNTESTABLE, UNTESTABLE)),
    "no intervals": (scaling_of([16, 6, 3.2], drawn_speedups=None), (UNTESTABLE, UNTESTABLE, UNTESTABLE)),
    "a reason against all claims": (
        scaling_of([16, 6, 3.2], untestable_reason="no target"),
        (UNTESTABLE, UNTESTABLE, UNTESTABLE),
    ),
    "communication takes no time": (
        scaling_of([16, 6, 3.2], unknown_loss_reason="no link"),
        (CONFIRMED, CONFIRMED, UNTESTABLE),
    ),
    "samples are not known": (scaling_of([16, 6, 3.2], loss_factors=None), (CONFIRMED, CONFIRMED, UNTESTABLE)),
    "the base is one worker alone, and two workers are a balance point": (
        scaling_of([9, 6, 5], (2, 4, 8), base=(1, 16)),
        (CONFIRMED, CONFIRMED, CONFIRMED),
    ),
    "the base is one worker alone, and two workers are not efficient": (
        scaling_of([20, 16, 14], (2, 4, 8), base=(1, 16)),
        (CONFIRMED, CONTRADICTED, CONFIRMED),
    ),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_every_claim_has_the_outcome_that_its_intervals_allow(case: str) -> None:
    """A claim that an interval does not decide must be neither confirmed nor contradicted."""
    scaling, expected = OUTCOMES[case]

    checked = check_claims(scaling)

    assert tuple(each.claim for each in checked) == (FASTER, BALANCE, LOSS)
    assert tuple(each.outcome for each in checked) == expected


@pytest.mark.parametrize("case", OUTCOMES)
def test_every_sentence_states_its_outcome_and_a_number_or_the_reason(case: str) -> None:
    """A sentence without evidence cannot be checked by its reader."""
    scaling, _ = OUTCOMES[case]

    for checked in check_claims(scaling):
        sentence = describe_claim(checked, scaling)
        others = [other for other in ClaimOutcome if other is not checked.outcome]

        assert sentence.lower().startswith(f"{checked.outcome} for ring: ")
        assert not any(f"{other} for" in sentence.lower() for other in others)
        assert checked.reason or checked.numbers
        assert "()" not in sentence
        assert "nan" not in sentence
        if checked.outcome is UNTESTABLE:
            assert checked.reason in sentence


def test_a_balance_point_is_named_with_the_sizes_that_the_draws_choose() -> None:
    """With 4 workers, E' is 0.5, so one half of the draws chooses one worker alone."""
    scaling = scaling_of([16, 8, 4])

    checked = check_claims(scaling)[1]

    assert checked.numbers["workers"].interval == pytest.approx((1, 4))
    assert "E' is 0.5 or more up to 4 workers [1, 4], with E' 0.500 [" in describe_claim(checked, scaling)


def test_a_slow_first_size_is_named_by_zero() -> None:
    """If even the fewest workers may be below the limit, the interval starts below all numbers of workers."""
    checked = check_claims(scaling_of([16, 12, 10], (2, 4, 8), base=(1, 16)))[1]

    assert checked.outcome is CLOSE
    assert checked.numbers["workers"].interval == pytest.approx((0, 2))


def test_the_share_of_hardware_is_a_ratio_of_logarithms() -> None:
    """E' falls to 0.3125 = 0.893 × 0.35, so hardware is ln(0.893) / ln(0.3125) = 9.7 % of the loss."""
    share = check_claims(scaling_of([16, 6, 3.2], statistical=0.35))[2].numbers["hardware_share"]

    assert share.value == pytest.approx(np.log(0.3125 / 0.35) / np.log(0.3125))
    assert share.interval
    assert share.interval[0] < share.value < share.interval[1]


def test_communication_is_named_only_where_it_was_measured() -> None:
    """Published results have no times of communication; a run has the phases of every step."""
    unknown, measured = (scaling_of([16, 6, 3.2], communication_shares=shares) for shares in (None, (0.0, 0.64)))

    assert "the part of communication is not known" in describe_claim(check_claims(unknown)[2], unknown)
    sentence = describe_claim(check_claims(measured)[2], measured)
    assert "exchange and waiting take 0% of a step on 1 worker and 64% of a step on 16 workers" in sentence
