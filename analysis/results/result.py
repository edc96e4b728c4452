"""One trial in numbers, and trials of one kind together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from analysis.checks.verdict import Level, Verdict, worst
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.metrics.final import final_metrics
from analysis.metrics.happened import Happened, happened
from analysis.metrics.phase_seconds import phase_seconds
from analysis.metrics.predicted_step import predicted_mean_step_s, predicted_step_s
from analysis.metrics.progress import samples_done, samples_per_second, steps_done
from analysis.metrics.samples_to_target import evaluation_samples, samples_to_target
from analysis.metrics.staleness import staleness
from analysis.metrics.step_seconds import Typical, step_seconds, typical_of, typical_step_s
from analysis.metrics.switch import Switch, switch
from analysis.metrics.time_to_target import time_to_target_s
from analysis.reading.run_table import TrialTable
from analysis.statistics.centre import Floats, olympic_mean

Status = Literal["success", "missed_target", "failed", "aborted"]
TIMES = "\N{MULTIPLICATION SIGN}"
Labels = dict[str, str | int | float]
Of = Literal["time_to_target", "time_to_samples"]  # what a time is: to the target, or for samples


@dataclass(frozen=True)
class TrialResult:
    """One trial in summary.json; the names of the fields are the contract (DESIGN, section 6)."""

    id: str
    strategy: str
    workers: int
    servers: int
    repeat: int
    seed: int
    labels: Labels
    status: Status
    verdict: Level
    reasons: list[str]
    steps: int
    samples: int
    seconds: float | None
    samples_per_second: float | None
    time_to_target_s: float | None
    samples_to_target: int | None
    final: dict[str, float]
    step_seconds: dict[str, float] | None
    predicted_step_seconds: float | None  # the closed form's median over all steps of all workers
    phase_seconds: dict[str, float] | None  # of a step on a whole batch, where there are such
    overlap: float | None
    bytes_sent: dict[str, int]
    expected_bytes_sent: dict[str, int]
    staleness: dict[str, Any] | None
    params_sha256: str | None
    # Additions to the contract:
    baseline: bool
    condition: str  # the swept keys other than workers, as one phrase
    declared_samples_per_second: float | None  # sum over the workers
    target: str | None
    status_reason: str
    events: list[Happened]
    typical_step_seconds: float | None  # what the prediction is compared with: the median, a round's mean being a step
    predicted_samples_per_second: float | None  # by the closed form: all workers, dropped gradients included
    switch: Switch | None = None  # between strategies, where one was planned
    evaluation_samples: int | None = None  # between the target and the evaluation before: what it is rounded by
    predicted_mean_step_seconds: float | None = None  # the closed form's mean over the steps that phases are of
    saturates_at: float | None = None  # workers that fill the servers' links, by the closed form
    typical_of: Typical = "median"  # what `typical_step_seconds` is of the steps; a round's steps are what it has each

    @property
    def finished(self) -> bool:
        """Whether it trained to its end, on target or not."""
        return self.status in ("success", "missed_target") and self.samples > 0

    @property
    def evaluation_s(self) -> float:
        """Seconds since the evaluation before the target; zero where the target was missed."""
        if not self.samples_to_target or not self.time_to_target_s or not self.evaluation_samples:
            return 0.0
        return self.time_to_target_s * self.evaluation_samples / self.samples_to_target

    @property
    def compared_of(self) -> Typical:
        """What of the steps is held against the closed form; a median after a switch would be of one strategy."""
        return "mean" if self.switch and self.switch.switched else self.typical_of

    @property
    def compared_step_seconds(self) -> float | None:
        """The measured step that is held against the closed form."""
        if self.switch and self.switch.switched:
            return self.step_seconds["mean"] if self.step_seconds else None
        return self.typical_step_seconds

    @property
    def remainder(self) -> float | None:
        """What the closed form leaves unexplained: measured step / predicted step - 1."""
        if not self.compared_step_seconds or not self.predicted_step_seconds:
            return None
        return self.compared_step_seconds / self.predicted_step_seconds - 1


def measure(trial: TrialTable, verdicts: Iterable[Verdict]) -> TrialResult:
    """Every metric of one trial."""
    planned, judged = trial.plan, tuple(verdicts)
    status, reason = _ending(trial)
    missed = status == "missed_target"  # what a model that diverged reached before was not kept
    return TrialResult(
        id=planned.trial,
        strategy=planned.label,
        workers=planned.workers,
        servers=planned.servers,
        repeat=planned.repeat,
        seed=planned.seed,
        labels=planned.labels,
        status=status,
        verdict=worst(judged),
        reasons=[verdict.reason for verdict in judged if verdict.level != Level.VALID],
        steps=steps_done(trial),
        samples=samples_done(trial),
        seconds=trial.seconds,
        samples_per_second=samples_per_second(trial),
        time_to_target_s=None if missed else time_to_target_s(trial),
        samples_to_target=None if missed else samples_to_target(trial),
        final=final_metrics(trial),
        step_seconds=step_seconds(trial),
        predicted_step_seconds=predicted_step_s(trial),
        phase_seconds=phase_seconds(trial),
        overlap=None,  # nodes log exposed communication only: what computing hid is not measured yet
        bytes_sent=bytes_sent(trial),
        expected_bytes_sent=expected_bytes_sent(trial),
        staleness=staleness(trial),
        params_sha256=trial.params_sha256,
        baseline=planned.baseline,
        condition=", ".join(f"{key.split('.')[-1]} {value}" for key, value in planned.condition),
        declared_samples_per_second=planned.samples_per_second,
        target=str(planned.target) if planned.target else None,
        status_reason=reason,
        events=happened(trial),
        typical_step_seconds=typical_step_s(trial),
        predicted_samples_per_second=planned.predicted_samples_per_second,
        switch=switch(trial),
        evaluation_samples=evaluation_samples(trial),
        predicted_mean_step_seconds=predicted_mean_step_s(trial),
        saturates_at=planned.saturates_at,
        typical_of=typical_of(planned),
    )


def _ending(trial: TrialTable) -> tuple[Status, str]:
    """How it ended and why: the engine's word first, then whether the coordinator got to its end, then the target.

    `run_stop` with status aborted is MLPerf's word for a run that ended without its target: a result, not a failure.
    """
    told, reason = trial.status.get("status"), str(trial.status.get("reason", ""))
    if told != "success":
        return "failed" if told == "failed" else "aborted", reason or "the engine recorded no end"
    if trial.unreadable:
        lost = str(next(each for each in trial.damage if not each.diverged))
        return "failed" if trial.stop else "aborted", lost
    if not trial.stop:
        return "aborted", "the coordinator logged no end"
    return _stopped(trial) or ("success", reason)


def _stopped(trial: TrialTable) -> tuple[Status, str] | None:
    """What training itself came to, where that is no success; a model that diverged reaches no target."""
    reason = str(trial.stop.get("reason", ""))
    if trial.plan.target is None and trial.stop.get("status") == "aborted":
        return "aborted", reason
    if trial.damage:
        return "failed" if trial.plan.target is None else "missed_target", str(trial.damage[0])
    if trial.plan.target is not None and time_to_target_s(trial) is None:
        return "missed_target", reason
    return None


@dataclass(frozen=True)
class Group:
    """The finished repeats of one strategy on one number of workers under one condition."""

    strategy: str
    condition: str
    workers: int
    trials: tuple[TrialResult, ...]

    @property
    def baseline(self) -> bool:
        """Whether this is the single worker that the others are compared with."""
        return self.trials[0].baseline

    @property
    def servers(self) -> int:
        """Dedicated servers beside the workers."""
        return self.trials[0].servers

    @property
    def name(self) -> str:
        """`ring x4` with the condition where there is one."""
        return f"{self.strategy} {TIMES}{self.workers}" + (f" · {self.condition}" if self.condition else "")

    @property
    def where(self) -> str:
        """As sentences say it: `ring on 4 workers`, with the condition where there is one."""
        one = f"{self.workers} worker{'s' * (self.workers != 1)}"
        kind = "one worker alone" if self.baseline else f"{self.strategy} on {one}"
        return f"{kind} ({self.condition})" if self.condition else kind

    @property
    def by_seed(self) -> tuple[TrialResult, ...]:
        """The repeats in the order of their seeds, so that groups can be paired."""
        return tuple(sorted(self.trials, key=lambda trial: trial.seed))

    @property
    def seeds(self) -> frozenset[int]:
        """What its repeats began with."""
        return frozenset(trial.seed for trial in self.trials)

    def times(self, of: Of) -> Floats:
        """One per repeat, by seed: seconds to the target, infinite for a miss, or per sample over all workers."""
        if of == "time_to_samples":
            return np.array([_seconds_per_sample(trial) for trial in self.by_seed])
        return np.array([_or_infinite(trial.time_to_target_s) for trial in self.by_seed])

    def seconds(self, of: Of) -> float:
        """Their olympic mean; infinite when too many repeats missed the target."""
        return float(olympic_mean(self.times(of)))

    @property
    def time_to_target_s(self) -> float:
        """Olympic mean; infinite when too many repeats missed."""
        return self.seconds("time_to_target")

    @property
    def samples_by_repeat(self) -> Floats:
        """Samples to the target, one per repeat, by seed; a miss is infinite."""
        return np.array([_or_infinite(trial.samples_to_target) for trial in self.by_seed])

    @property
    def samples_to_target(self) -> float:
        """Olympic mean; infinite when too many repeats missed."""
        return float(olympic_mean(self.samples_by_repeat))

    @property
    def evaluation_samples(self) -> float:
        """The widest step that samples to the target come in; zero where no repeat met it."""
        return float(max(trial.evaluation_samples or 0 for trial in self.trials))

    def evaluation(self, of: Of) -> float:
        """The widest step that times come in: the target is met at evaluations only; zero for a rate."""
        return max(trial.evaluation_s for trial in self.trials) if of == "time_to_target" else 0.0

    @property
    def reached(self) -> bool:
        """Whether the repeats as a whole reached the target."""
        return bool(np.isfinite(self.time_to_target_s))

    @property
    def step_s(self) -> float | None:
        """Mean over the repeats of the median step."""
        return _mean([trial.step_seconds["p50"] for trial in self.trials if trial.step_seconds])

    @property
    def typical_step_s(self) -> float | None:
        """Mean over the repeats of the step that predictions are compared with."""
        return _mean([trial.typical_step_seconds for trial in self.trials if trial.typical_step_seconds])

    @property
    def predicted_step_s(self) -> float | None:
        """Mean over the repeats of the predicted step."""
        return _mean([trial.predicted_step_seconds for trial in self.trials if trial.predicted_step_seconds])

    @property
    def predicted_mean_step_s(self) -> float | None:
        """Mean over the repeats of the predicted mean over the steps that `phase_s` is of."""
        told = [trial.predicted_mean_step_seconds for trial in self.trials]
        return _mean([each for each in told if each])

    @property
    def predicted_seconds_per_sample(self) -> float | None:
        """By the closed form, over all workers; mean over the repeats."""
        return _mean(
            [1 / trial.predicted_samples_per_second for trial in self.trials if trial.predicted_samples_per_second]
        )

    @property
    def phase_s(self) -> dict[str, float]:
        """Mean over the repeats of each phase of a step; empty when no step was logged."""
        phases = [trial.phase_seconds for trial in self.trials if trial.phase_seconds]
        return {name: float(np.mean([each[name] for each in phases])) for name in phases[0]} if phases else {}


def groups(trials: Iterable[TrialResult]) -> tuple[Group, ...]:
    """The finished trials by strategy, condition and workers, in the order in which they first appear."""
    members: dict[tuple[str, str, int], list[TrialResult]] = {}
    for trial in trials:
        if trial.finished:
            members.setdefault((trial.strategy, trial.condition, trial.workers), []).append(trial)
    return tuple(Group(*key, tuple(found)) for key, found in members.items())


def basis(found: Iterable[Group], *, every: bool = False) -> Of:
    """Which time these are compared by: to the target as soon as one of them reached it, for who missed it lost.

    `every`: only where each of them reached it, as ratios need, since no number of times is as long as never.
    """
    reached = [group.reached for group in found]
    return "time_to_target" if (all if every else any)(reached) else "time_to_samples"


def same_seeds(found: Sequence[Group]) -> bool:
    """Whether every group ran the same seeds, each once, and more than one."""
    seeds = [[trial.seed for trial in group.by_seed] for group in found]
    return len(set(seeds[0])) == len(seeds[0]) > 1 and all(each == seeds[0] for each in seeds)


def on_shared_seeds(one: Group, other: Group) -> tuple[Group, Group]:
    """The repeats whose seeds both ran: luck differs between seeds, and by more than runs do."""
    shared = one.seeds & other.seeds
    ours, theirs = (
        replace(each, trials=tuple(trial for trial in each.trials if trial.seed in shared)) for each in (one, other)
    )
    return ours, theirs


def baseline_of(member: Group, found: Iterable[Group]) -> Group | None:
    """The baseline of the same conditions.

    A baseline has no value for a key of somebody else's strategy, such as its number of servers: it serves for all.
    """
    return next((group for group in found if group.baseline and _serves(group, member)), None)


def by_step(found: Sequence[Group]) -> list[Group]:
    """The shortest step first where nothing but the strategy differs; else as they come, a strategy's rows together."""
    kinds = {(group.condition, group.workers) for group in found if not group.baseline}
    return list(found) if len(kinds) > 1 else sorted(found, key=lambda group: group.step_s or 0.0)


def _serves(baseline: Group, member: Group) -> bool:
    labels = member.trials[0].labels
    given = ((key, value) for key, value in baseline.trials[0].labels.items() if key != "workers")
    return all(labels.get(key) == value for key, value in given)


def _seconds_per_sample(trial: TrialResult) -> float:
    """Zero where nothing took time: a simulated cluster without any pace or rate."""
    if trial.samples_per_second:
        return 1 / trial.samples_per_second
    return 0.0 if trial.seconds == 0 else float("inf")


def _or_infinite(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
