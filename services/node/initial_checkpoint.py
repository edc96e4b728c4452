"""Checkpoint with which a trial begins: the states of an earlier training, on the same or on other workers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from services.checkpoints import (
    CheckpointError,
    CheckpointFolder,
    CheckpointIdentity,
    CompleteCheckpoint,
    WrittenCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from services.checkpoints.files import copy_checkpoint
from services.checkpoints.other_worker_count import UnsupportedWorkerChange, WorkerChange
from services.checkpoints.state_tree import State
from services.plan import TrainingPlan
from services.plan.training.regrouping import regroup_plan
from services.ps_shard.worker_change import change_workers_of_server
from services.runtime.device import select_compute_device
from services.worker.position_change import change_positions
from services.worker.training_position import export_position, import_position


class EarlierTraining(NamedTuple):
    """Plan of an earlier training, and one of its checkpoints."""

    plan: TrainingPlan
    checkpoint: CompleteCheckpoint

    @property
    def step(self) -> int:
        """Number of steps that were finished before the checkpoint."""
        return self.checkpoint.manifest.step

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of the workers that the checkpoint has states of, by rank."""
        return self.checkpoint.manifest.workers


def find_checkpoints(trial_folder: Path, plan: TrainingPlan) -> Iterator[EarlierTraining | CheckpointError]:
    """Yield each checkpoint of a trial that was complete, the newest first; of a damaged one the error."""
    for found in CheckpointFolder(trial_folder).check_checkpoints():
        if isinstance(found, CheckpointError):
            yield found
        elif found.manifest.plan_digest != plan.sha256:
            yield CheckpointError(found.folder, "belongs to another plan than the file plan.json of its trial")
        else:
            yield EarlierTraining(plan, found)


def write_initial_checkpoint(earlier: EarlierTraining, plan: TrainingPlan, trial_folder: Path) -> None:
    """Write the states of an earlier training as a checkpoint of the trial of `plan`, which then begins with it.

    Args:
        earlier: the checkpoint. Its files stay unchanged.
        plan: plan of the trial; `explain_training_difference` has found no difference.
        trial_folder: receives the checkpoint.

    Raises:
        CheckpointError: a file is damaged or can't be read, or a new one can't be written.
        UnsupportedWorkerChange: the trial has other workers, for which the states are not defined.
    """
    workers = tuple(worker.name for worker in plan.node_plans_of_role("worker"))
    folder = CheckpointFolder(trial_folder)
    if workers == earlier.workers:
        files = _copy_files(earlier, plan, folder)
    else:
        files = _write_changed_states(earlier, plan, workers, folder)
    folder.write_manifest(plan.sha256, plan.trial, earlier.step, workers, files)


def _copy_files(earlier: EarlierTraining, plan: TrainingPlan, folder: CheckpointFolder) -> dict[str, WrittenCheckpoint]:
    """Copy the states of all nodes, bit for bit."""
    return {
        node: copy_checkpoint(
            earlier.checkpoint.node_path(node),
            earlier.plan.sha256,
            folder.prepare_node_path(earlier.step, node),
            _make_identity(earlier, plan, node),
        )
        for node in earlier.checkpoint.manifest.files
    }


def _make_identity(earlier: EarlierTraining, plan: TrainingPlan, node: str) -> CheckpointIdentity:
    samples = plan.data_order.count_samples_before(earlier.step)
    return CheckpointIdentity(
        plan_digest=plan.sha256, trial=plan.trial, node=node, step=earlier.step, epoch=0, samples=samples
    )


def _write_changed_states(
    earlier: EarlierTraining, plan: TrainingPlan, workers: tuple[str, ...], folder: CheckpointFolder
) -> dict[str, WrittenCheckpoint]:
    """Write the states with which other workers continue."""
    device, step = select_compute_device("cpu"), earlier.step

    def read(node: str) -> State:
        checkpoint = read_checkpoint(earlier.checkpoint.node_path(node), earlier.plan.sha256, device)
        if checkpoint.has_device_arrays:
            raise UnsupportedWorkerChange(
                f"the state of {node} was on a GPU, and can't be divided among other workers; use the workers "
                f"{', '.join(earlier.workers)}"
            )
        return checkpoint.state

    change = _make_worker_change(earlier, plan, workers)
    positions = change_positions([import_position(read(worker)) for worker in earlier.workers], change)
    states = dict(zip(workers, map(export_position, positions), strict=True))
    push_samples = plan.data_order.share_sizes(step - 1, plan.initial_shares)
    for server in plan.node_plans_of_role("ps_shard"):
        states[server.name] = change_workers_of_server(read(server.name), step, push_samples)
    return {
        node: write_checkpoint(folder.prepare_node_path(step, node), _make_identity(earlier, plan, node), state, device)
        for node, state in states.items()
    }


def _make_worker_change(earlier: EarlierTraining, plan: TrainingPlan, workers: tuple[str, ...]) -> WorkerChange:
    """Return which of the earlier workers continue: those with the same names."""
    ranks = tuple(earlier.workers.index(name) if name in earlier.workers else None for name in workers)
    before = regroup_plan(earlier.plan, earlier.workers).initial_shares
    return WorkerChange(ranks, len(earlier.workers), _normalise_shares(before), _normalise_shares(plan.initial_shares))


def _normalise_shares(shares: Sequence[int]) -> tuple[float, ...]:
    return tuple(share / sum(shares) for share in shares)
