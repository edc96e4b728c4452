"""Positions of workers after a change of their number: n workers continue as m workers."""

from collections.abc import Sequence
from dataclasses import replace

from services.checkpoints.other_worker_count import WorkerChange, WorkerSnapshot, change_workers
from services.worker.counters import LossAndStepCounters
from services.worker.training_position import TrainingPosition


def change_positions(positions: Sequence[TrainingPosition], change: WorkerChange) -> list[TrainingPosition]:
    """Return the positions of workers by new rank, given those of all old workers before the same step by old rank.

    The losses since the last evaluation keep their sum. A new worker counts the steps of the first continuing one.

    Raises:
        UnsupportedWorkerChange: the state of this strategy is not defined for another number of workers.
    """
    snapshots = [WorkerSnapshot(position.result.params, position.result.state) for position in positions]
    counters = _change_counters([position.counters for position in positions], change)
    return [
        replace(position, result=replace(position.result, params=new.params, state=new.state), counters=own)
        for position, new, own in zip(
            change.copy_values(positions), change_workers(snapshots, change), counters, strict=True
        )
    ]


def _change_counters(counters: Sequence[LossAndStepCounters], change: WorkerChange) -> list[LossAndStepCounters]:
    sums = change.add_counts([each.loss_sum for each in counters])
    samples = change.add_counts([each.loss_samples for each in counters])
    return [
        replace(own, loss_sum=loss_sum, loss_samples=loss_samples)
        for own, loss_sum, loss_samples in zip(change.copy_values(counters), sums, samples, strict=True)
    ]
