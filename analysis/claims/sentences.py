"""Sentences on the outcomes of the claims: one sentence per claim and curve, with its numbers."""

from collections.abc import Callable

from analysis.claims.outcomes import CheckedClaim, Claim, Estimate, Estimates
from analysis.claims.scaling import MeasuredScaling
from analysis.report.wording import (
    TIMES_SIGN,
    capitalise_first_letter,
    format_count,
    format_interval,
    format_number,
    format_percentage,
    format_percentage_interval,
)
from analysis.statistics.worker_count_rules import MIN_EFFICIENCY

SIZES = ("smallest", "largest")
CLAIM_TEXTS: dict[Claim, str] = {  # {worker}: noun in the singular
    Claim.LESS_TIME_LESS_EFFICIENCY: "more {worker}s shorten the training time but lower the efficiency per {worker}",
    Claim.BALANCE_POINT: "there is a balance point, up to which more {worker}s shorten the time at a high efficiency",
    Claim.HARDWARE_LOSS: "most of the lost efficiency is hardware efficiency, not more samples to target",
}


def describe_claim(checked_claim: CheckedClaim, scaling: MeasuredScaling) -> str:
    """Return the sentence on the outcome of one claim for one curve of training times, without full stop."""
    text = CLAIM_TEXTS[checked_claim.claim].format(worker=scaling.worker_noun)
    numbers = NUMBER_TEXTS[checked_claim.claim](checked_claim.numbers, scaling) if checked_claim.numbers else ""
    evidence = "; ".join(filter(None, [checked_claim.reason, numbers]))
    return f"{capitalise_first_letter(checked_claim.outcome)} for {scaling.name}: {text} ({evidence})"


def _describe_times_and_efficiencies(numbers: Estimates, scaling: MeasuredScaling) -> str:
    smallest_time, largest_time = (
        f"{format_number(numbers[f'{size}_time'].value)} {scaling.time_unit}"
        f"{format_interval(numbers[f'{size}_time'].interval)} on {_format_size(numbers[size], scaling)}"
        for size in SIZES
    )
    efficiencies = (_format(numbers[f"{size}_efficiency"]) for size in SIZES)
    return f"{smallest_time} and {largest_time}; E' {' and '.join(efficiencies)}"


def _describe_balance_point(numbers: Estimates, scaling: MeasuredScaling) -> str:
    rule, base = f"E' is {MIN_EFFICIENCY:g} or more", _format_size(numbers["base"], scaling)
    low, high = numbers["workers"].interval or (0, 0)
    interval, largest = f"[{low:,.0f}, {high:,.0f}]", _format_size(numbers["largest"], scaling)
    at_largest = f"on {largest}, E' is {_format(numbers['largest_efficiency'])}"
    if "speedup" not in numbers:
        return f"{rule} on no measured size above {base} {interval}; {at_largest}"
    there = f"with E' {_format(numbers['efficiency'])} and {_format(numbers['speedup'])} times as fast as {base}"
    point = f"{rule} up to {_format_size(numbers['workers'], scaling)} {interval}, {there}"
    return f"{point}; {at_largest}" if numbers["workers"].value < numbers["largest"].value else point


def _describe_loss(numbers: Estimates, scaling: MeasuredScaling) -> str:
    ratio, hardware, statistical = (numbers[name] for name in ("efficiency_ratio", "hardware", "statistical"))
    sizes = f"from {numbers['smallest'].value:,.0f} to {_format_size(numbers['largest'], scaling)}"
    factors = f"hardware {format_number(hardware.value)} {TIMES_SIGN} statistical {format_number(statistical.value)}"
    if "hardware_share" not in numbers:
        return f"{sizes}, E' is multiplied by {_format(ratio)}; {factors}"
    share, interval = numbers["hardware_share"].value, numbers["hardware_share"].interval
    shares = f"hardware is {format_percentage(share)}{format_percentage_interval(interval)} of the loss"
    loss = f"E' is multiplied by {format_number(ratio.value)} = {factors}"
    return f"{sizes}, {loss}; {shares}; {_describe_communication(numbers, scaling)}"


def _describe_communication(numbers: Estimates, scaling: MeasuredScaling) -> str:
    """Describe which share of a step is communication, if it was measured."""
    if "largest_communication_share" not in numbers:
        return "the part of communication is not known"
    first, last = (
        f"{format_percentage(numbers[f'{size}_communication_share'].value)} of a step on "
        f"{_format_size(numbers[size], scaling)}"
        for size in SIZES
    )
    return f"exchange and waiting take {first} and {last}"


def _format(estimate: Estimate) -> str:
    return f"{format_number(estimate.value)}{format_interval(estimate.interval)}"


def _format_size(size: Estimate, scaling: MeasuredScaling) -> str:
    return format_count(round(size.value), scaling.worker_noun)


NUMBER_TEXTS: dict[Claim, Callable[[Estimates, MeasuredScaling], str]] = {
    Claim.LESS_TIME_LESS_EFFICIENCY: _describe_times_and_efficiencies,
    Claim.BALANCE_POINT: _describe_balance_point,
    Claim.HARDWARE_LOSS: _describe_loss,
}
