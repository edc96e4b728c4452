"""Division of the time of each worker into uses, such as counted steps, checkpoints and recovery."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.reading.logs.membership import MembershipEpoch, MembershipLog, NodeLoss, Recovery
from analysis.reading.run_table import TrialLogTables
from analysis.statistics.centre import Floats

TimeUse = Literal["counted_steps", "evaluations", "lost_steps", "detection", "recovery", "checkpoints", "absence"]
NO_EPOCH = -1


class UsedIntervals(NamedTuple):
    """Intervals of one worker's time with the same use, in seconds since the start of training."""

    use: TimeUse
    starts_s: Floats
    ends_s: Floats
    epoch: int = NO_EPOCH  # membership epoch that followed the failure which caused the use


@dataclass(frozen=True)
class MembershipChange:
    """Membership epoch with the losses since the epoch before, and the workers that continued in it."""

    epoch: MembershipEpoch
    losses: tuple[NodeLoss, ...]
    recoveries: dict[str, Recovery]  # by worker

    @property
    def first_step(self) -> int | None:
        """Step from which training continued; None if it was not logged."""
        logged = [recovery.first_step for recovery in self.recoveries.values()]
        return min(logged) if self.epoch.first_step is None and logged else self.epoch.first_step

    @property
    def failure_s(self) -> float:
        """Time of the last heartbeat of the first lost node; without losses, the time of the change."""
        return min((loss.time_s - loss.silent_s for loss in self.losses), default=self.recovery_start_s)

    @property
    def recovery_start_s(self) -> float:
        """Time at which the coordinator knew of the first loss, or began to change the membership."""
        return min((loss.recovery_start_s for loss in self.losses), default=self.epoch.time_s - self.epoch.seconds)

    def recovery_end_s(self, worker: str) -> float:
        """Return the time at which a worker continued."""
        return self.recoveries[worker].time_s if worker in self.recoveries else self.epoch.time_s

    @property
    def last_recovery_end_s(self) -> float:
        """Time at which the last worker continued."""
        return max([self.epoch.time_s, *(recovery.time_s for recovery in self.recoveries.values())])

    @property
    def have_all_continued(self) -> bool:
        """Whether all workers of the epoch logged that they continued in it; asynchronous workers log nothing."""
        return set(self.epoch.workers) <= set(self.recoveries)


def list_membership_changes(membership: MembershipLog) -> list[MembershipChange]:
    """Return the changes of the membership in the order of time, each with its losses and recoveries."""
    changes, begin_s = [], -np.inf
    for epoch in membership.epochs:
        losses = tuple(loss for loss in membership.losses if begin_s < loss.time_s <= epoch.time_s)
        recoveries = {each.node: each for each in membership.recoveries if each.epoch == epoch.number}
        changes.append(MembershipChange(epoch, losses, recoveries))
        begin_s = epoch.time_s
    return changes


def find_synchronous_end_s(trial: TrialLogTables) -> float:
    """Return the virtual time in seconds until which all workers do the same steps.

    It is 0 in asynchronous training and infinite in synchronous training. In between, a strategy switch to asynchronous
    training was committed.
    """
    if trial.plan.sync_or_async == "asynchronous":
        return 0.0
    after = trial.plan.second_phase
    if after is None or after.is_synchronous or trial.switch_record is None:
        return np.inf
    return trial.switch_record.committed_s


def group_changes_by_recovery(
    changes: Sequence[MembershipChange], synchronous_end_s: float
) -> list[tuple[MembershipChange, ...]]:
    """Group the changes of the membership, so that training goes on after the last change of each group.

    If a node is lost or returns during a recovery, the next epoch replaces the one in which workers have not yet
    continued. Asynchronous workers go on through each change.
    """
    groups: list[tuple[MembershipChange, ...]] = []
    replaced: tuple[MembershipChange, ...] = ()
    for change in changes:
        replaced = (*replaced, change)
        if change.have_all_continued or change.epoch.time_s >= synchronous_end_s:
            groups.append(replaced)
            replaced = ()
    return [*groups, replaced] if replaced else groups


def measure_worker_seconds(trial: TrialLogTables, end_s: float) -> dict[tuple[TimeUse, int], float]:
    """Return the seconds of each use, summed over all workers, from the start of training to `end_s`.

    The keys are (use, membership epoch). A moment that has several uses belongs to the first of them in the order of
    `_list_uses`.
    """
    changes = list_membership_changes(trial.membership)
    rows_of = {str(name): rows for name, rows in trial.steps.groupby("node", observed=True)}
    total_s: dict[tuple[TimeUse, int], float] = {}
    for worker in (node.name for node in trial.plan.nodes if node.role == "worker"):
        rows = rows_of.get(worker, trial.steps.iloc[:0])
        uses = list(_list_uses(trial, worker, rows, changes, end_s))
        for use, seconds in zip(uses, measure_uses(uses, end_s), strict=True):
            total_s[use.use, use.epoch] = total_s.get((use.use, use.epoch), 0.0) + seconds
    return total_s


def measure_uses(uses: Sequence[UsedIntervals], end_s: float) -> list[float]:
    """Return the seconds of each use between 0 and `end_s`; moments that belong to earlier uses are left out."""
    starts_s, ends_s, lengths = np.empty(0), np.empty(0), [0.0]
    for use in uses:
        starts_s, ends_s = np.append(starts_s, use.starts_s), np.append(ends_s, use.ends_s)
        lengths.append(
            _union_length(starts_s.clip(0, end_s), ends_s.clip(0, end_s)) if len(use.starts_s) else lengths[-1]
        )
    return [later - earlier for earlier, later in pairwise(lengths)]


def _union_length(starts: Floats, ends: Floats) -> float:
    """Return the length of the union of intervals."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    covered_until = np.maximum.accumulate(np.concatenate([[0.0], ends[:-1]]))
    return float(np.maximum(0.0, ends - np.maximum(starts, covered_until)).sum())


def _list_uses(
    trial: TrialLogTables, worker: str, rows: pd.DataFrame, changes: Sequence[MembershipChange], end_s: float
) -> Iterator[UsedIntervals]:
    """Yield the uses of one worker's time; those that come first take precedence."""
    writes = [write for write in trial.membership.checkpoint_attempts if write.node == worker]
    yield _intervals("checkpoints", [(write.time_s - write.seconds, write.time_s) for write in writes])
    starts_s = rows["start_s"].to_numpy(float)
    ends_s = starts_s + rows["step_s"].to_numpy(float)
    discarding = _find_discarding_epochs(worker, rows, starts_s, changes, find_synchronous_end_s(trial))
    counts = discarding == 0
    yield UsedIntervals("counted_steps", starts_s[counts], ends_s[counts])
    evaluations = trial.evals.drop_duplicates(["step", "time_s"]).dropna(subset=["duration_s"])
    is_last = ~evaluations.duplicated("step", keep="last").to_numpy()
    evaluation_ends_s = evaluations["time_s"].to_numpy(float)
    evaluation_starts_s = evaluation_ends_s - evaluations["duration_s"].to_numpy(float)
    yield UsedIntervals("evaluations", evaluation_starts_s[is_last], evaluation_ends_s[is_last])
    yield UsedIntervals("lost_steps", evaluation_starts_s[~is_last], evaluation_ends_s[~is_last])
    for epoch in np.unique(discarding[~counts]).tolist():
        lost = discarding == epoch
        yield UsedIntervals("lost_steps", starts_s[lost], ends_s[lost], epoch)
    yield _intervals("absence", _list_absences(worker, changes, end_s))
    for change in changes:
        yield from _list_uses_of_change(worker, change, starts_s, ends_s)


def _intervals(use: TimeUse, pairs: Sequence[tuple[float, float]], epoch: int = NO_EPOCH) -> UsedIntervals:
    starts_and_ends = np.array(pairs, dtype=float).reshape(len(pairs), 2)
    return UsedIntervals(use, starts_and_ends[:, 0], starts_and_ends[:, 1], epoch)


def _find_discarding_epochs(
    worker: str,
    rows: pd.DataFrame,
    starts_s: Floats,
    changes: Sequence[MembershipChange],
    synchronous_end_s: float,
) -> NDArray[np.int64]:
    """Return for each step of a worker the membership epoch that discarded the step; 0 for a step that counts.

    An epoch discards the steps from its first step on that began before the epoch. The first step is that which the
    worker logged. A lost worker logs none: in synchronous training, its first step is that of the other workers, and in
    asynchronous training only the steps are discarded that the worker repeats after its restart.
    """
    steps = rows["step"].to_numpy(float)
    discarding = np.zeros(len(rows), dtype=np.int64)
    for change in changes:
        is_before = starts_s < change.recovery_end_s(worker)
        recovery, is_synchronous = change.recoveries.get(worker), change.epoch.time_s < synchronous_end_s
        first_step = recovery.first_step if recovery else change.first_step if is_synchronous else None
        is_discarded = np.isin(steps, steps[~is_before]) if first_step is None else steps >= first_step
        discarding[(discarding == 0) & is_before & is_discarded] = change.epoch.number
    return discarding


def _list_uses_of_change(
    worker: str, change: MembershipChange, starts_s: Floats, ends_s: Floats
) -> Iterator[UsedIntervals]:
    """Yield the uses of a worker's time in one change: the step that was broken off, detection, and recovery."""
    number, failure_s, known_s = change.epoch.number, change.failure_s, change.recovery_start_s
    takes_part = worker in change.recoveries or worker in change.epoch.workers
    is_lost = any(loss.node == worker for loss in change.losses)
    if takes_part or is_lost:
        earlier_ends_s = ends_s[starts_s < failure_s]
        last_end_s = float(earlier_ends_s.max()) if len(earlier_ends_s) else failure_s
        yield _intervals("lost_steps", [(last_end_s, max(last_end_s, failure_s))], number)
        detections = [(loss.recovery_start_s - loss.detection_s, loss.recovery_start_s) for loss in change.losses]
        yield _intervals("detection", detections, number)
        yield _intervals("recovery", [(known_s, change.recovery_end_s(worker))], number)


def _list_absences(worker: str, changes: Sequence[MembershipChange], end_s: float) -> list[tuple[float, float]]:
    """Return the intervals in which a worker is no member."""
    begins_s = [change.epoch.time_s for change in changes]
    return [
        (change.epoch.time_s, next_s)
        for change, next_s in zip(changes, [*begins_s[1:], end_s], strict=False)
        if worker not in change.epoch.workers
    ]
