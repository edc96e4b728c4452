"""Result of a switch between two strategies within a trial.

The result states whether the switch took place, what it saved, and why.

Times are per global batch: the seconds that all workers together take for as many samples as one synchronous step has.
For a synchronous strategy this is the step. For an asynchronous one, worker r computes m_r samples in s_r seconds of
its own steps, so a batch of B samples takes B / Σ(m_r/s_r).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.metrics.step_times.step_seconds import mean_or_median_step_s
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_table import TrialLogTables
from analysis.reading.training_phases import TrainingPhase, training_phases


@dataclass(frozen=True)
class TrainingPhaseDurations:
    """Times of a trial before or after it switched strategies, in virtual seconds."""

    samples: int
    seconds: float
    batch_s: float  # measured seconds per global batch: the sum of the next three
    computing_s: float  # compute, and waiting for other workers' compute
    exchanging_s: float  # the rest of the steps
    finishing_s: float  # between steps, and at the end while other workers still train
    predicted_step_s: float | None
    step_s: float  # measured, `mean_or_median_step_s` over workers and steps


@dataclass(frozen=True)
class BatchTimeSaving:
    """Seconds per global batch that a strategy switch saved, by cause.

    Negative values are seconds that it cost. `straggler_s`, `exchange_s`, `finish_s` and `shares_s` are measured and
    add up to `batch_s`. `latency_s` and `bandwidth_s` are the difference between the closed forms of both strategies.
    `queueing_s` is the rest of `exchange_s`: waiting in a server's queue, links shared unevenly, this host. `finish_s`:
    asynchronous workers finish at different times. `shares_s`: where workers were promoted to servers, fewer workers
    share a batch.
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
class StrategySwitchResult:
    """Result of a planned strategy switch, with the times before and after the switch."""

    outcome: str  # "switched", "never switched" or "aborted: " and the reason
    value: float | None  # of the switch rule when it fired, else at its last evaluation; None without enough data
    threshold: float | None
    points: int  # evaluations that the rule received
    step: int | None = None  # first step of the strategy after the switch
    share: float | None = None  # samples before the switch / all samples
    hand_over_s: float | None = None
    before: TrainingPhaseDurations | None = None
    after: TrainingPhaseDurations | None = None
    gain: BatchTimeSaving | None = None
    break_even_workers: float | None = None  # number that saturates the servers' links, by the closed form
    saved_s: float | None = None  # compared with no switch, less the time of the switch itself
    stale_s: float | None = None  # per batch after the switch: cost of the samples that no switch would have saved
    verdict: str = "unknown"  # whether it paid, compared with trials without a switch: see `SwitchVerdict`
    quality: str = ""  # how the model's quality decided the verdict, as text
    before_strategy: str | None = None  # strategy of the run that equals the first phase; None: the run has none
    after_strategy: str | None = None  # strategy of the run that equals the second phase

    @property
    def has_paid_off(self) -> bool:
        """Whether training to the same model quality took less time than without the strategy switch."""
        return self.verdict == "paid"

    @property
    def has_lost_model_quality(self) -> bool:
        """Whether the model is worse than after training without the strategy switch."""
        return self.verdict == "quality was lost"

    @property
    def has_switched(self) -> bool:
        """Whether the planned strategy switch took place, so that training went on with the second strategy."""
        return self.outcome == "switched"


def measure_switch_times(trial: TrialLogTables) -> StrategySwitchResult | None:
    """Measure how a strategy switch changed the times of a trial.

    Return None where no switch was planned.
    """
    plan, record = trial.plan, trial.switch_record
    if plan.second_phase is None or record is None:
        return None
    points = record.rule_points
    valued = [point for point in points if point.get("value") is not None]
    deciding = next((point for point in points if point["fires"]), valued[-1] if valued else {})
    uncommitted = StrategySwitchResult(record.outcome, deciding.get("value"), deciding.get("threshold"), len(points))
    if not record.committed:
        return uncommitted
    times = {phase.name: _compute_times_per_batch(phase, plan) for phase in training_phases(trial)}
    before, after = times.get("before"), times.get("after")
    gain = _compute_batch_time_saved(before, after, plan) if before and after else None
    hand_over_s = float(record.committed["seconds"])
    samples = sum(phase_times.samples for phase_times in times.values())
    return replace(
        uncommitted,
        step=int(record.committed["step"]),
        share=int(record.committed["samples"]) / samples if samples else None,
        hand_over_s=hand_over_s,
        before=before,
        after=after,
        gain=gain,
        break_even_workers=plan.saturation_workers,
        saved_s=gain.batch_s * after.samples / plan.batch - hand_over_s if gain and after and plan.batch else None,
    )


def staleness_cost_s_per_batch(
    switch_result: StrategySwitchResult, samples_with_switch: int, samples_without_switch: int
) -> float | None:
    """Return the seconds per global batch that a strategy switch costs in additional samples.

    The switch costs time because training then needs more samples.

    The cost is that of learning from stale gradients, after the switch. It is negative where the trial that switched
    needs fewer samples, and None where the target was reached before the switch.

    Args:
        switch_result: a switch with times before and after it.
        samples_with_switch: samples to the target of the trial that switched.
        samples_without_switch: samples to the target of a trial with the same seed that did not switch.
    """
    if (
        switch_result.before is None
        or switch_result.after is None
        or samples_with_switch <= switch_result.before.samples
    ):
        return None
    return (
        switch_result.after.batch_s
        * (samples_with_switch - samples_without_switch)
        / (samples_with_switch - switch_result.before.samples)
    )


def _compute_times_per_batch(training_phase: TrainingPhase, trial_plan: TrialPlan) -> TrainingPhaseDurations:
    """Return the durations per global batch before or after the strategy switch of a trial.

    Seconds of the phase outside of steps count as finishing, not as exchange. A worker that still computes when the
    first one stops for the switch does so within the switch, not within the phase. In a synchronous step, compute
    and waiting last until the last worker exchanges.
    """
    steps = training_phase.steps
    until_exchange_s = steps["data_s"] + steps["compute_s"] + steps["wait_s"]
    per_batch = trial_plan.batch / training_phase.trained_sample_count if training_phase.trained_sample_count else 0.0
    stepping_s = _compute_global_batch_s(steps, steps["step_s"], trial_plan.batch)
    synchronous_s = float(until_exchange_s.groupby(steps["step"]).max().sum()) * per_batch
    is_synchronous = training_phase.sync_or_async == "synchronous"
    computing_s = (
        synchronous_s if is_synchronous else _compute_global_batch_s(steps, until_exchange_s, trial_plan.batch)
    )
    finishing_s = max(0.0, training_phase.seconds * per_batch - stepping_s)
    return TrainingPhaseDurations(
        samples=training_phase.trained_sample_count,
        seconds=training_phase.seconds,
        batch_s=stepping_s + finishing_s,
        computing_s=computing_s,
        exchanging_s=stepping_s - computing_s,
        finishing_s=finishing_s,
        predicted_step_s=training_phase.predicted.median_step_s,
        step_s=mean_or_median_step_s(steps, trial_plan, training_phase.exchange_period),
    )


def _compute_global_batch_s(
    step_rows: pd.DataFrame, seconds_by_row: "pd.Series[float]", global_batch_samples: int
) -> float:
    """Return the seconds that parallel workers need for one global batch.

    For a batch of B samples, this is B / Σ(samples / seconds), where the sum is over the workers.
    """
    by_worker = (
        pd.DataFrame({"samples": step_rows["samples"], "spent_s": seconds_by_row}).groupby(step_rows["rank"]).sum()
    )
    busy = by_worker[by_worker["samples"] > 0]
    if busy.empty or not (busy["spent_s"] > 0).all():
        return 0.0
    return float(global_batch_samples / (busy["samples"] / busy["spent_s"]).sum())


def _compute_batch_time_saved(
    times_before: TrainingPhaseDurations,
    times_after: TrainingPhaseDurations,
    trial_plan: TrialPlan,
) -> BatchTimeSaving:
    """Return the seconds per global batch that a strategy switch saved, by cause.

    A cause is, for example, latency or bandwidth.
    """
    second = trial_plan.second_phase
    assert second is not None  # noqa: S101 - a trial that switched has a plan for the second strategy
    exchange_s = times_before.exchanging_s - times_after.exchanging_s
    latency_before_s, latency_after_s = second.latencies_s
    latency_s = latency_before_s - latency_after_s
    bandwidth_s = (trial_plan.predicted.exchange_s - latency_before_s) - (second.predicted.exchange_s - latency_after_s)
    remaining_workers = trial_plan.workers - len(second.new_server_names)
    shares_s = times_before.computing_s * (1 - trial_plan.workers / remaining_workers)
    return BatchTimeSaving(
        batch_s=times_before.batch_s - times_after.batch_s,
        shares_s=shares_s,
        straggler_s=times_before.computing_s - times_after.computing_s - shares_s,
        exchange_s=exchange_s,
        latency_s=latency_s,
        bandwidth_s=bandwidth_s,
        queueing_s=exchange_s - latency_s - bandwidth_s,
        finish_s=times_before.finishing_s - times_after.finishing_s,
    )


def find_median_saving_switch(switch_results: Sequence[StrategySwitchResult]) -> StrategySwitchResult:
    """Return the strategy switch with the median saving among repeats.

    Return the first one if no saving was measured.
    Repeats whose switch did not pay rank below all repeats whose switch paid.
    """
    measured = (switch for switch in switch_results if switch.saved_s is not None)
    ranked = sorted(measured, key=lambda switch: (switch.has_paid_off, switch.saved_s or 0.0))
    return ranked[(len(ranked) - 1) // 2] if ranked else switch_results[0]


def strategy_switch_table_row(result: StrategySwitchResult) -> dict[str, Any]:
    """Return the result of a strategy switch as one row of a table of trials."""
    gain = vars(result.gain) if result.gain else {}
    outcome = {"outcome": result.outcome, "share": result.share, "hand_over_s": result.hand_over_s}
    return {**outcome, **gain, "stale_s": result.stale_s, "verdict": result.verdict if result.gain else None}
