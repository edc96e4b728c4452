"""Text on a switch between two strategies: whether it took place, whether it saved time, and why."""

from collections.abc import Sequence

from analysis.metrics.strategy_changes.strategy_switch import BatchTimeSaving, StrategySwitchResult
from analysis.report.wording import format_number


def describe_reported_repeat(switch_results: Sequence[StrategySwitchResult]) -> str:
    """Return which repeat of a strategy switch is described, such as "the median of 5 repeats"."""
    if len(switch_results) == 1:
        return "one repeat"
    measured = [switch for switch in switch_results if switch.saved_s is not None]
    return f"the {'median' if measured else 'first'} of {len(measured or switch_results)} repeats"


def describe_switch_outcomes(switch_results: Sequence[StrategySwitchResult]) -> str:
    """Return text on how many repeats switched the strategy, and how many switches paid.

    The result is empty if repeats do not differ.
    """
    switched = [switch for switch in switch_results if switch.has_switched]
    judged = [switch for switch in switched if switch.gain]  # a switch before the first step has no times to compare
    paid = sum(switch.has_paid_off for switch in judged)
    unswitched = f"{len(switch_results) - len(switched)} of {len(switch_results)} repeats never switched"
    parts = [unswitched] * (0 < len(switched) < len(switch_results))
    parts += [f"it paid in {paid} of {len(judged)}"] * (0 < paid < len(judged))
    return ", ".join(parts)


def describe_strategy_switch(result: StrategySwitchResult, worker_count: int) -> str:
    """Return a clause that states whether a strategy switch took place, whether it saved time, and why."""
    if not result.has_switched:
        return f"{result.outcome}{_describe_switch_trigger(result)}"
    if result.gain is None or result.before is None or result.after is None or result.saved_s is None:
        place = "after the last" if result.before else "before the first"
        return f"switched {place} step: there is nothing to compare with"
    after, before = (f"{format_number(1e3 * times.batch_s)} ms" for times in (result.after, result.before))
    if after == before and not result.has_paid_off:
        quality = f"; {result.quality}" if result.quality else ""
        return f"the switch did not pay: a batch takes {after} as before{quality}"
    batch_change = f"a batch takes {after} instead of {before}"
    cause = describe_time_gain_cause(result.gain, result, worker_count)
    return f"the switch {_describe_switch_verdict(result, result.saved_s, batch_change, cause)}"


def _describe_switch_verdict(result: StrategySwitchResult, saved_s: float, time_clause: str, reason: str) -> str:
    """Return the predicate of a sentence on a strategy switch, such as "paid, because …".

    The change of the batch time is given as the reason only where it agrees with the verdict.
    """
    if result.has_paid_off and saved_s > 0:
        return f"paid, because {time_clause}: {reason}"
    if result.has_paid_off:
        return f"paid: {time_clause}, but {result.quality}"
    if saved_s > 0 and result.verdict == "unknown":
        return f"saved time, because {time_clause}: {reason}; whether the model is as good as without it is unknown"
    if result.after and result.before and result.after.batch_s >= result.before.batch_s:
        quality = f"; {result.quality}" if result.has_lost_model_quality else ""
        return f"did not pay, because {time_clause}: {reason}{quality}"
    time_of_switch = (
        f"the switch itself took {format_number(1e3 * (result.hand_over_s or 0.0))} ms, more than that saves"
    )
    return f"did not pay: {time_clause}, but {result.quality or time_of_switch}"


def describe_time_gain_cause(time_gain: BatchTimeSaving, switch_result: StrategySwitchResult, worker_count: int) -> str:
    """Return the main reason why a strategy switch saved or cost time.

    The text states the milliseconds per batch.

    Where the exchange is the largest cause, return the largest of its parts: latency, bandwidth or queueing.
    """
    straggler = _text_by_sign(time_gain.straggler_s, "no wait for the slowest", "waits for the slowest")
    finish = _text_by_sign(time_gain.finish_s, "workers finish together", "workers finish at different times")
    measured = (
        (time_gain.straggler_s, straggler),
        (time_gain.shares_s, "fewer workers share a batch"),
        (time_gain.exchange_s, ""),
        (time_gain.finish_s, finish),
    )
    latency = _text_by_sign(time_gain.latency_s, "fewer messages in a row", "more messages in a row")
    links_carry_more = _describe_link_saturation(switch_result, worker_count, "links carry more")
    gradients_queue = _describe_link_saturation(switch_result, worker_count, "gradients queue")
    exchange = (
        (time_gain.latency_s, latency),
        (time_gain.bandwidth_s, _text_by_sign(time_gain.bandwidth_s, "links carry less", links_carry_more)),
        (time_gain.queueing_s, _text_by_sign(time_gain.queueing_s, "less queueing", gradients_queue)),
    )
    sign = 1 if time_gain.batch_s >= 0 else -1
    largest = _find_main_gain_cause(measured, sign)
    saved_s, cause = largest if largest[1] else _find_main_gain_cause(exchange, sign)
    return f"{cause} ({'+' * (saved_s >= 0)}{format_number(1e3 * saved_s)} ms saved)"


def _find_main_gain_cause(
    saved_s_cause_pairs: Sequence[tuple[float, str]], gain_or_loss_sign: int
) -> tuple[float, str]:
    """Return the cause with the largest saving or the largest cost in seconds.

    `gain_or_loss_sign` is 1 for the largest saving and -1 for the largest cost.
    """
    return max(saved_s_cause_pairs, key=lambda part: gain_or_loss_sign * part[0])


def _text_by_sign(saved_s: float, text_if_saved: str, text_if_lost: str) -> str:
    return text_if_saved if saved_s >= 0 else text_if_lost


def _describe_link_saturation(switch_result: StrategySwitchResult, worker_count: int, text_if_unsaturated: str) -> str:
    """Return a clause that the servers' links are saturated.

    If the links are not saturated, return `text_if_unsaturated`.
    """
    saturating_workers = switch_result.break_even_workers
    if saturating_workers is None or worker_count <= saturating_workers:
        return text_if_unsaturated
    return f"the servers' links are saturated: {saturating_workers:.3g} workers fill them, {worker_count} run"


def _describe_switch_trigger(switch_result: StrategySwitchResult) -> str:
    if switch_result.value is None or switch_result.threshold is None:
        return ""
    return f" (last value of the switch rule: {switch_result.value:.3g}, threshold: {switch_result.threshold:.3g})"
