"""Did a switch between strategies happen, and where did what it gained come from?

All times are per global batch: what the workers together take for as many samples as one lockstep step has. In lockstep
that is the step. Otherwise worker r is done with a step of its own every s_r, so n of them take n / Σ(1/s_r).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import pandas as pd

from analysis.metrics.step_seconds import centre_s
from analysis.phases import Phase, phases
from analysis.plan import PlanView
from analysis.table import TrialTable
from services.links import goodput


@dataclass(frozen=True)
class Half:
    """One strategy of a switching trial; virtual seconds."""

    samples: int
    seconds: float
    batch_s: float  # measured
    computing_s: float  # of it: the mathematics, and in lockstep waiting for the slowest worker's
    exchanging_s: float  # the rest
    predicted_step_s: float | None
    step_s: float  # measured, median over workers and steps


@dataclass(frozen=True)
class Gain:
    """Seconds per global batch that the switch saved; negative ones it cost.

    `straggler_s` and `exchange_s` are measured. Latency and bandwidth are the closed forms' difference; `queueing_s` is
    what is left of the exchange: waiting in a server's queue, sharing links unevenly, this host.
    """

    batch_s: float
    straggler_s: float
    exchange_s: float
    latency_s: float
    bandwidth_s: float
    queueing_s: float


@dataclass(frozen=True)
class Switch:
    """What became of a switch that was planned."""

    outcome: str  # switched, never switched, aborted: …
    value: float | None  # of the rule, at the evaluation point where it fired or at the last one
    threshold: float | None
    points: int  # evaluation points that the rule was told of
    step: int | None = None  # the first of the strategy after
    share: float | None = None  # of the samples before the switch
    hand_over_s: float | None = None
    before: Half | None = None
    after: Half | None = None
    gain: Gain | None = None
    break_even_workers: float | None = None  # from which on servers are saturated, by the closed form
    saved_s: float | None = None  # against going on as before, the hand-over taken off

    @property
    def switched(self) -> bool:
        """Whether the strategy after took over."""
        return self.outcome == "switched"


def switch(trial: TrialTable) -> Switch | None:
    """The switch of a trial; None where its strategy has none."""
    plan, record = trial.plan, trial.switch
    if plan.after is None or record is None:
        return None
    told = [point for point in record.points if point.get("value") is not None]
    fired = next((point for point in told if point["fires"]), told[-1] if told else {})
    found = Switch(record.outcome, fired.get("value"), fired.get("threshold"), len(record.points))
    if not record.committed:
        return found
    halves = {phase.name: _half(phase, plan) for phase in phases(trial)}
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
        break_even_workers=break_even_workers(plan),
        saved_s=gain.batch_s * after.samples / plan.batch - hand_over_s if gain and after and plan.batch else None,
    )


def _half(phase: Phase, plan: PlanView) -> Half:
    steps, lockstep = phase.steps, phase.synchrony == "synchronous"
    batch_s = phase.seconds * plan.batch / phase.samples if phase.samples else 0.0
    full = plan.batch * len(steps) / (plan.workers * phase.samples) if phase.samples else 1.0  # an epoch's last is not
    computing_s = full * (_lockstep_s(steps) if lockstep else _together_s(steps))
    return Half(
        samples=phase.samples,
        seconds=phase.seconds,
        batch_s=batch_s,
        computing_s=computing_s,
        exchanging_s=batch_s - computing_s,
        predicted_step_s=phase.predicted.median_step_s,
        step_s=centre_s(steps, plan),
    )


def _lockstep_s(steps: pd.DataFrame) -> float:
    """Mathematics and waiting for the slowest: what a step takes until the last worker exchanges, on average."""
    reached = steps["data_s"] + steps["compute_s"] + steps["wait_s"]
    return float(reached.groupby(steps["step"]).max().mean())


def _together_s(steps: pd.DataFrame) -> float:
    """Mathematics of workers that wait for nobody: n / Σ(1 / mean of each)."""
    own = (steps["data_s"] + steps["compute_s"]).groupby(steps["rank"]).mean()
    return float(len(own) / (1 / own).sum()) if (own > 0).all() else 0.0


def _gain(before: Half, after: Half, plan: PlanView) -> Gain:
    second = plan.after
    assert second is not None  # noqa: S101 - a trial that switched was planned to
    exchange_s = before.exchanging_s - after.exchanging_s
    latency_s = second.latencies_s[0] - second.latencies_s[1]
    bandwidth_s = (plan.predicted.exchange_s - second.latencies_s[0]) - (
        second.predicted.exchange_s - second.latencies_s[1]
    )
    return Gain(
        batch_s=before.batch_s - after.batch_s,
        straggler_s=before.computing_s - after.computing_s,
        exchange_s=exchange_s,
        latency_s=latency_s,
        bandwidth_s=bandwidth_s,
        queueing_s=exchange_s - latency_s - bandwidth_s,
    )


def break_even_workers(plan: PlanView) -> float | None:
    """n* = s·(t_c·B/S + 2): from so many workers on, s servers behind links of B can't answer faster for more.

    t_c is the mathematics of a worker's step, S the parameters' bytes; workers' links are as wide. None where no
    server's link is declared, and where workers hold shards: more workers are more servers then.
    """
    if any(node.role == "worker" and node.name in plan.holders for node in plan.nodes):
        return None
    servers = [node for node in plan.nodes if node.role == "ps_shard"]
    rates = [rate for node in servers for rate in (node.uplink_bps, node.downlink_bps) if rate]
    if not rates or not plan.vector_bytes or plan.after is None:
        return None
    served = plan.predicted if plan.synchrony == "asynchronous" else plan.after.predicted  # who waits computes longer
    found = len(servers) * (served.compute_s * goodput(min(rates)) / plan.vector_bytes + 2)
    return found if isfinite(found) else None


def typical(found: Sequence[Switch]) -> Switch:
    """Of several repeats the one whose gain is the median; the first where none switched."""
    switched = sorted((each for each in found if each.saved_s is not None), key=lambda each: each.saved_s or 0.0)
    return switched[(len(switched) - 1) // 2] if switched else found[0]


def how_often(found: Sequence[Switch]) -> str:
    """Where repeats differ: how many switched, and to how many of them it paid."""
    switched = [each for each in found if each.switched]
    paid = sum((each.saved_s or 0.0) > 0 for each in switched)
    stayed = f"{len(found) - len(switched)} of {len(found)} repeats never switched"
    parts = [stayed] * (0 < len(switched) < len(found))
    parts += [f"it paid in {paid} of {len(switched)}"] * (0 < paid < len(switched))
    return ", ".join(parts)


def told(found: Switch, workers: int) -> str:
    """Whether the switch paid, and why, in one clause."""
    if not found.switched:
        shown = _value(found)
        return f"{found.outcome}{shown}"
    if found.gain is None or found.before is None or found.after is None or found.saved_s is None:
        return "switched before the first step: there is nothing to compare with"
    verb = "paid" if found.saved_s > 0 else "did not pay"
    gain, ms = found.gain, 1e3
    change = f"a batch takes {ms * found.after.batch_s:.3g} ms instead of {ms * found.before.batch_s:.3g} ms"
    return f"the switch {verb}, because {change}: {reason(gain, found, workers)}"


def reason(gain: Gain, found: Switch, workers: int) -> str:
    """The part of the gain that is largest in its direction."""
    parts = (
        (gain.straggler_s, _either(gain.straggler_s, "no wait for the slowest", "waits for the slowest")),
        (gain.latency_s, _either(gain.latency_s, "fewer messages in a row", "more messages in a row")),
        (gain.bandwidth_s, _either(gain.bandwidth_s, "links carry less", _full(found, workers, "links carry more"))),
        (gain.queueing_s, _either(gain.queueing_s, "less queueing", _full(found, workers, "gradients queue"))),
    )
    way = 1 if gain.batch_s >= 0 else -1
    saved_s, name = max(parts, key=lambda part: way * part[0])
    return f"{name} ({1e3 * saved_s:+.3g} ms saved)"


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
    return {"outcome": found.outcome, "share": found.share, "hand_over_s": found.hand_over_s, **gain}
