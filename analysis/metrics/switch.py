"""Did a switch between strategies happen, and where did what it gained come from?

All times are per global batch: what the workers together take for as many samples as one lockstep step has. In lockstep
that is the step. Otherwise worker r has m_r samples in s_r seconds of its own steps, so B of all take B / Σ(m_r/s_r).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.metrics.step_seconds import centre_s
from analysis.reading.plan_view import PlanView
from analysis.reading.run_table import TrialTable
from analysis.reading.training_phases import TrainingPhase, training_phases
from analysis.report.wording import number


@dataclass(frozen=True)
class Half:
    """One strategy of a switching trial; virtual seconds."""

    samples: int
    seconds: float
    batch_s: float  # measured
    computing_s: float  # of it: the mathematics, and waiting for other workers'
    exchanging_s: float  # the rest of its steps
    finishing_s: float  # between steps, and at the end while others are not done yet
    predicted_step_s: float | None
    step_s: float  # measured, median over workers and steps


@dataclass(frozen=True)
class Gain:
    """Seconds per global batch that the switch saved; negative ones it cost.

    `straggler_s`, `exchange_s`, `finish_s` and `shares_s` are measured, and add up to `batch_s`. Latency and bandwidth
    are the closed forms' difference; `queueing_s` is what is left of the exchange: waiting in a server's queue, sharing
    links unevenly, this host. `finish_s`: workers that wait for nobody are done at moments of their own. `shares_s`:
    fewer workers have larger shares where some were promoted.
    """

    batch_s: float
    straggler_s: float
    exchange_s: float
    latency_s: float
    bandwidth_s: float
    queueing_s: float
    finish_s: float
    shares_s: float = 0.0


@dataclass(frozen=True)
class Switch:
    """What became of a switch that was planned."""

    outcome: str  # switched, never switched, aborted: …
    value: float | None  # of the rule, where it fired, else at the last point; None: too little was known
    threshold: float | None
    points: int  # evaluation points that the rule was told of
    step: int | None = None  # the first of the strategy after
    share: float | None = None  # of the samples before the switch
    hand_over_s: float | None = None
    before: Half | None = None
    after: Half | None = None
    gain: Gain | None = None
    break_even_workers: float | None = None  # that fill the servers' links, by the closed form
    saved_s: float | None = None  # against going on as before, the hand-over taken off
    stale_s: float | None = None  # per batch after: what samples to the target cost that going on as before saves
    verdict: str = "unknown"  # whether it paid, beside trials that went on as before: of `analysis.metrics.worth`
    quality: str = ""  # what the model's quality has to do with that, in words

    @property
    def paid(self) -> bool:
        """Whether it saved time on the way to the same quality."""
        return self.verdict == "paid"

    @property
    def lost(self) -> bool:
        """Whether the model is worse than without it."""
        return self.verdict == "quality was lost"

    @property
    def switched(self) -> bool:
        """Whether the strategy after took over."""
        return self.outcome == "switched"


def switch(trial: TrialTable) -> Switch | None:
    """The switch of a trial; None where its strategy has none."""
    plan, record = trial.plan, trial.switch_record
    if plan.second_phase is None or record is None:
        return None
    told = [point for point in record.rule_points if point.get("value") is not None]
    fired = next((point for point in record.rule_points if point["fires"]), told[-1] if told else {})
    found = Switch(record.outcome, fired.get("value"), fired.get("threshold"), len(record.rule_points))
    if not record.committed:
        return found
    halves = {phase.name: _half(phase, plan) for phase in training_phases(trial)}
    before, after = halves.get("before"), halves.get("after")
    gain = _gain(before, after, plan) if before and after else None
    hand_over_s = float(record.committed["seconds"])
    samples = sum(half.samples for half in halves.values())
    return Switch(
        outcome=found.outcome,
        value=found.value,
        threshold=found.threshold,
        points=found.points,
        step=int(record.committed["step"]),
        share=int(record.committed["samples"]) / samples if samples else None,
        hand_over_s=hand_over_s,
        before=before,
        after=after,
        gain=gain,
        break_even_workers=plan.saturation_workers,
        saved_s=gain.batch_s * after.samples / plan.batch - hand_over_s if gain and after and plan.batch else None,
    )


def stale_s(found: Switch, needed: int, needed_before: int) -> float | None:
    """Seconds per global batch after the switch that go into samples which the strategy before would not have needed.

    They are what learning from stale gradients costs; negative where it needs fewer. None where nothing came after.

    Args:
        found: a switch with both halves.
        needed: samples to the target of the trial that switched.
        needed_before: of one with the same seed that went on as before.
    """
    if found.before is None or found.after is None or needed <= found.before.samples:
        return None
    return found.after.batch_s * (needed - needed_before) / (needed - found.before.samples)


def _half(phase: TrainingPhase, plan: PlanView) -> Half:
    """Steps are what they took by themselves; what they leave of the phase is nobody's exchange.

    Who is still at a step when the first stops for the switch is so within the hand-over, not within the phase. In
    lockstep mathematics and waiting are what steps take until their last worker exchanges.
    """
    steps = phase.steps
    reached = steps["data_s"] + steps["compute_s"] + steps["wait_s"]
    per_batch = plan.batch / phase.samples if phase.samples else 0.0
    stepping_s = _together_s(steps, steps["step_s"], plan.batch)
    in_lockstep_s = float(reached.groupby(steps["step"]).max().sum()) * per_batch
    computing_s = in_lockstep_s if phase.synchrony == "synchronous" else _together_s(steps, reached, plan.batch)
    finishing_s = max(0.0, phase.seconds * per_batch - stepping_s)
    return Half(
        samples=phase.samples,
        seconds=phase.seconds,
        batch_s=stepping_s + finishing_s,
        computing_s=computing_s,
        exchanging_s=stepping_s - computing_s,
        finishing_s=finishing_s,
        predicted_step_s=phase.predicted.median_step_s,
        step_s=centre_s(steps, plan),
    )


def _together_s(steps: pd.DataFrame, spent_s: "pd.Series[float]", batch: int) -> float:
    """What workers side by side take for a global batch, each as fast as it is while busy: B / Σ(samples / seconds)."""
    by_worker = pd.DataFrame({"samples": steps["samples"], "spent_s": spent_s}).groupby(steps["rank"]).sum()
    busy = by_worker[by_worker["samples"] > 0]
    if busy.empty or not (busy["spent_s"] > 0).all():
        return 0.0
    return float(batch / (busy["samples"] / busy["spent_s"]).sum())


def _gain(before: Half, after: Half, plan: PlanView) -> Gain:
    second = plan.second_phase
    assert second is not None  # noqa: S101 - a trial that switched was planned to
    exchange_s = before.exchanging_s - after.exchanging_s
    latency_s = second.latencies_s[0] - second.latencies_s[1]
    bandwidth_s = (plan.predicted.exchange_s - second.latencies_s[0]) - (
        second.predicted.exchange_s - second.latencies_s[1]
    )
    left = plan.workers - len(second.promoted_workers)
    shares_s = before.computing_s * (1 - plan.workers / left)
    return Gain(
        batch_s=before.batch_s - after.batch_s,
        shares_s=shares_s,
        straggler_s=before.computing_s - after.computing_s - shares_s,
        exchange_s=exchange_s,
        latency_s=latency_s,
        bandwidth_s=bandwidth_s,
        queueing_s=exchange_s - latency_s - bandwidth_s,
        finish_s=before.finishing_s - after.finishing_s,
    )


def typical(found: Sequence[Switch]) -> Switch:
    """The repeat whose gain is the median, those that did not pay standing first; the first where none switched."""
    gaining = (each for each in found if each.saved_s is not None)
    switched = sorted(gaining, key=lambda each: (each.paid, each.saved_s or 0.0))
    return switched[(len(switched) - 1) // 2] if switched else found[0]


def repeats(found: Sequence[Switch]) -> str:
    """Which of how many repeats `typical` is."""
    if len(found) == 1:
        return "one repeat"
    gaining = [each for each in found if each.saved_s is not None]
    return f"the {'median' if gaining else 'first'} of {len(gaining or found)} repeats"


def how_often(found: Sequence[Switch]) -> str:
    """Where repeats differ: how many switched, and to how many of them it paid."""
    switched = [each for each in found if each.switched]
    judged = [each for each in switched if each.gain]  # one before the first step has nothing to compare with
    paid = sum(each.paid for each in judged)
    stayed = f"{len(found) - len(switched)} of {len(found)} repeats never switched"
    parts = [stayed] * (0 < len(switched) < len(found))
    parts += [f"it paid in {paid} of {len(judged)}"] * (0 < paid < len(judged))
    return ", ".join(parts)


def told(found: Switch, workers: int) -> str:
    """Whether the switch paid, and why, in one clause."""
    if not found.switched:
        shown = _value(found)
        return f"{found.outcome}{shown}"
    if found.gain is None or found.before is None or found.after is None or found.saved_s is None:
        place = "after the last" if found.before else "before the first"
        return f"switched {place} step: there is nothing to compare with"
    after, before = (f"{number(1e3 * half.batch_s)} ms" for half in (found.after, found.before))
    if after == before and not found.paid:
        return f"the switch did not pay: a batch takes {after} as before{f'; {found.quality}' if found.quality else ''}"
    change = f"a batch takes {after} instead of {before}"
    return f"the switch {_verdict(found, found.saved_s, change, reason(found.gain, found, workers))}"


def _verdict(found: Switch, saved_s: float, change: str, cause: str) -> str:
    """What batches take is a reason only where it points the same way as the verdict."""
    if found.paid:
        return f"paid, because {change}: {cause}" if saved_s > 0 else f"paid: {change}, but {found.quality}"
    if saved_s > 0 and found.verdict == "unknown":
        return f"saved time, because {change}: {cause}; nothing tells whether the model is as good as without it"
    if found.after and found.before and found.after.batch_s >= found.before.batch_s:
        also = f"; {found.quality}" if found.lost else ""
        return f"did not pay, because {change}: {cause}{also}"
    late = f"the hand-over took {number(1e3 * (found.hand_over_s or 0.0))} ms, more than that saves"
    return f"did not pay: {change}, but {found.quality or late}"


def reason(gain: Gain, found: Switch, workers: int) -> str:
    """The measured part of the gain that is largest in its direction; of an exchange, what of it the forms explain."""
    measured = (
        (gain.straggler_s, _either(gain.straggler_s, "no wait for the slowest", "waits for the slowest")),
        (gain.shares_s, "fewer workers share a batch"),
        (gain.exchange_s, ""),
        (gain.finish_s, _either(gain.finish_s, "workers finish together", "workers finish apart at the end")),
    )
    exchange = (
        (gain.latency_s, _either(gain.latency_s, "fewer messages in a row", "more messages in a row")),
        (gain.bandwidth_s, _either(gain.bandwidth_s, "links carry less", _full(found, workers, "links carry more"))),
        (gain.queueing_s, _either(gain.queueing_s, "less queueing", _full(found, workers, "gradients queue"))),
    )
    way = 1 if gain.batch_s >= 0 else -1
    first = _largest(measured, way)
    saved_s, name = first if first[1] else _largest(exchange, way)
    return f"{name} ({'+' * (saved_s >= 0)}{number(1e3 * saved_s)} ms saved)"


def _largest(parts: Sequence[tuple[float, str]], way: int) -> tuple[float, str]:
    return max(parts, key=lambda part: way * part[0])


def _either(saved_s: float, less: str, more: str) -> str:
    return less if saved_s >= 0 else more


def _full(found: Switch, workers: int, otherwise: str) -> str:
    """Why servers answer late: there are more workers than they can serve, or something else."""
    limit = found.break_even_workers
    if limit is None or workers <= limit:
        return otherwise
    return f"the servers are saturated, {workers} workers where {limit:.3g} fill them"


def _value(found: Switch) -> str:
    if found.value is None or found.threshold is None:
        return ""
    return f" (the rule's value was {found.value:.3g} at last, its threshold {found.threshold:.3g})"


def plain(found: Switch) -> dict[str, Any]:
    """One row for a table of trials."""
    gain = vars(found.gain) if found.gain else {}
    told = {"outcome": found.outcome, "share": found.share, "hand_over_s": found.hand_over_s}
    return {**told, **gain, "stale_s": found.stale_s, "verdict": found.verdict if found.gain else None}
