"""Goodput of a trial: the share of the workers' time that went into steps that count, and what the rest went into.

All workers of the plan together have n·T seconds, where T is the time from `run_start` to `run_stop`. Goodput is the
share of n·T in steps that count and in evaluations. A step does not count if training went back to an earlier step
after it. An evaluation counts if no later evaluation is of the same step. A moment at which a worker does several
things counts once, in the order: checkpoint, step that counts, evaluation, lost step, absence, the rest
of a step that was broken off, detection, recovery.
"""

from dataclasses import dataclass

from analysis.metrics.worker_seconds import (
    MembershipChange,
    TimeUse,
    find_synchronous_end_s,
    group_changes_by_recovery,
    list_membership_changes,
    measure_worker_seconds,
)
from analysis.reading.fatal_losses import FatalLoss, list_fatal_losses
from analysis.reading.logs.membership import NodeLoss
from analysis.reading.run_table import TrialLogTables

NO_STEPS = "no step was logged"
NO_END = "the run has no end"
NO_TIME = "the run takes no time"
LOST_RECORDS = "records of the trial are lost"
WORKERS_BECOME_SERVERS = "workers become servers at the strategy switch"


@dataclass(frozen=True)
class Goodput:
    """Goodput of a trial and the parts of its complement. The names of the fields are keys in summary.json.

    All numbers are shares of the time of all workers; together they are 1. If the goodput is not known, all numbers are
    None, and `reason` states why.
    """

    share: float | None  # goodput: steps that count, and evaluations
    lost_steps: float | None = None  # steps that were repeated, discarded or broken off
    detection: float | None = None  # from the last heartbeat of a lost node until the coordinator considers it lost
    recovery: float | None = None  # from then on until a worker continues
    checkpoints: float | None = None
    absence: float | None = None  # of lost workers, while training goes on without them
    other: float | None = None  # not explained, such as gaps between steps
    reason: str = ""  # why the goodput is not known; empty if it is


@dataclass(frozen=True)
class NodeLossResult:
    """Loss of a node, and what followed. The names of the fields are keys in summary.json."""

    node: str
    time_s: float  # since the start of training, when the coordinator considered the node lost, or the node was ended
    reason: str
    detection_s: float | None  # since the last heartbeat of the node; None: the loss ended the trial at once
    epoch: int | None  # membership epoch in which training went on; None: training did not go on
    workers: int | None  # of this epoch
    first_step: int | None  # from which training went on
    recovery_s: float | None  # from the detection until the last worker continued
    lost_s: float | None  # seconds in lost steps, detection and recovery, mean over all workers; None: see `lost_with`
    lost_with: str = ""  # node lost before the same membership epoch, whose `lost_s` contains that of this node
    member_again_s: float | None = None  # since the start of training, when the node had returned; None: it did not


UNKNOWN_GOODPUT = Goodput(None, reason=NO_STEPS)
LOSS_USES: tuple[TimeUse, ...] = ("lost_steps", "detection", "recovery")


def measure_goodput(trial: TrialLogTables) -> Goodput:
    """Return the goodput of a trial; see the module for the definition."""
    reason = _find_reason_for_unknown_goodput(trial)
    if reason or not trial.seconds:
        return Goodput(None, reason=reason)
    worker_s = trial.plan.workers * trial.seconds
    shares: dict[TimeUse, float] = {}
    for (use, _), seconds in measure_worker_seconds(trial, trial.seconds).items():
        shares[use] = shares.get(use, 0.0) + seconds / worker_s
    counted = shares.get("counted_steps", 0.0) + shares.get("evaluations", 0.0)
    return Goodput(
        share=min(1.0, counted),
        lost_steps=shares.get("lost_steps", 0.0),
        detection=shares.get("detection", 0.0),
        recovery=shares.get("recovery", 0.0),
        checkpoints=shares.get("checkpoints", 0.0),
        absence=shares.get("absence", 0.0),
        other=max(0.0, 1.0 - sum(shares.values())),
    )


def _find_reason_for_unknown_goodput(trial: TrialLogTables) -> str:
    """Return why the goodput of a trial is not known; empty if it is."""
    second_phase = trial.plan.second_phase
    reasons = {
        NO_STEPS: trial.steps.empty,
        NO_END: trial.seconds is None,
        NO_TIME: trial.seconds == 0,
        LOST_RECORDS: trial.is_unreadable,
        WORKERS_BECOME_SERVERS: second_phase is not None and bool(second_phase.new_server_names),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def list_node_losses(trial: TrialLogTables) -> list[NodeLossResult]:
    """Return the losses of nodes of a trial in the order of time, with the seconds that each of them cost.

    Losses that ended the trial at once come from the engine's record of applied events; the coordinator logs the
    others.
    """
    fatal = [_describe_fatal_loss(loss) for loss in list_fatal_losses(trial)]
    return sorted([*_list_logged_losses(trial), *fatal], key=lambda loss: loss.time_s)


def _describe_fatal_loss(loss: FatalLoss) -> NodeLossResult:
    return NodeLossResult(
        node=loss.node,
        time_s=loss.time_s,
        reason=loss.cause,
        detection_s=None,
        epoch=None,
        workers=None,
        first_step=None,
        recovery_s=None,
        lost_s=None,
    )


def _list_logged_losses(trial: TrialLogTables) -> list[NodeLossResult]:
    """Return the losses that the coordinator logged, in the order of time."""
    if not trial.membership.losses:
        return []
    changes = list_membership_changes(trial.membership)
    synchronous_end_s = find_synchronous_end_s(trial)
    groups = group_changes_by_recovery(changes, synchronous_end_s)
    seconds = {} if _find_reason_for_unknown_goodput(trial) else measure_worker_seconds(trial, trial.seconds or 0.0)
    lost_s = {
        change.epoch.number: sum(seconds.get((use, change.epoch.number), 0.0) for use in LOSS_USES) / trial.plan.workers
        for change in changes
        if seconds
    }
    return [_describe_loss(loss, groups, lost_s, synchronous_end_s) for loss in trial.membership.losses]


def _describe_loss(
    loss: NodeLoss,
    change_groups: list[tuple[MembershipChange, ...]],
    lost_s_by_epoch: dict[int, float],
    synchronous_end_s: float,
) -> NodeLossResult:
    changes = next((group for group in change_groups if any(loss in change.losses for change in group)), None)
    before = (loss.node, loss.time_s, loss.reason, loss.detection_s)
    if changes is None:
        return NodeLossResult(*before, epoch=None, workers=None, first_step=None, recovery_s=None, lost_s=None)
    last, first_loss = changes[-1], next(loss for change in changes for loss in change.losses)
    lost_s = sum(lost_s_by_epoch.get(change.epoch.number, 0.0) for change in changes) if lost_s_by_epoch else None
    later_epochs = (change.epoch for group in change_groups for change in group if change.epoch.time_s >= loss.time_s)
    is_asynchronous = last.epoch.time_s >= synchronous_end_s  # such workers log no recovery
    has_continued = bool(last.recoveries) or is_asynchronous
    return NodeLossResult(
        *before,
        epoch=last.epoch.number if has_continued else None,
        workers=len(last.epoch.workers) if has_continued else None,
        first_step=last.first_step if has_continued else None,
        recovery_s=last.last_recovery_end_s - loss.recovery_start_s if has_continued else None,
        lost_s=lost_s if loss == first_loss else None,
        lost_with="" if loss == first_loss else first_loss.node,
        member_again_s=next((epoch.time_s for epoch in later_epochs if epoch.has_returned(loss.node)), None),
    )
