"""Checkpoints of one node of a running trial: writing them, and reading the one to continue from."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from services.checkpoints.checkpoint_error import CheckpointError
from services.checkpoints.file_format import CheckpointIdentity
from services.checkpoints.files import WrittenCheckpoint, read_checkpoint, write_checkpoint
from services.checkpoints.folder import CheckpointFolder
from services.checkpoints.node_disk import EmulatedDiskFullError, NodeDisk
from services.checkpoints.schedules import CheckpointSchedule
from services.checkpoints.state_tree import State
from services.runtime.clock import Clock
from services.runtime.device import ComputeDevice
from services.runtime.membership import CheckpointReport, Membership, MembershipClient
from services.runtime.run_log import RunLog
from services.schema.errors import HostError


def require_checkpoint_folder(trial_folder: Path | None) -> Path:
    """Return the folder of a trial that has its checkpoints.

    Raises:
        HostError: the engine has given none.
    """
    if trial_folder is None:
        raise HostError("the plan requires checkpoints, but the engine has given no folder for them")
    return trial_folder


@dataclass(frozen=True)
class NodeCheckpoints:
    """Checkpoints of one node, before the steps of a schedule."""

    folder: CheckpointFolder
    plan_digest: str
    trial: str
    node_name: str
    schedule: CheckpointSchedule
    first_step: int  # of the trial; above 0, the trial has begun with the checkpoint of this step
    device: ComputeDevice
    client: MembershipClient
    clock: Clock
    log: RunLog
    disk: NodeDisk

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due before `step`.

        A complete checkpoint is not written again after nodes have gone back to its step: it would be lost until all
        nodes have replaced their files.
        """
        is_scheduled = self.schedule.is_due(step)
        return is_scheduled and not self.folder.can_continue_from(step, self.node_name, self.plan_digest)

    async def write(self, step: int, epoch: int, samples: int, state: State) -> None:
        """Write the state before `step`, and report it to the coordinator, which completes the checkpoint.

        If the scenario declares that the disk is full, log that the file can't be written, and return: the coordinator
        then never completes the checkpoint.

        Raises:
            CheckpointError: the file can't be written for another reason.
        """
        await self._write_and_report(step, epoch, samples, state)
        self.schedule.restart_interval()

    async def _write_and_report(self, step: int, epoch: int, samples: int, state: State) -> None:
        start_s = self.clock.now()
        identity = CheckpointIdentity(
            plan_digest=self.plan_digest, trial=self.trial, node=self.node_name, step=step, epoch=epoch, samples=samples
        )
        path = self.folder.prepare_node_path(step, self.node_name)
        try:
            written = await self._write_file(path, identity, state)
        except CheckpointError as error:
            if not isinstance(error.__cause__, EmulatedDiskFullError):
                raise
            failure = {"seconds": round(self.clock.now() - start_s, 6), "reason": error.reason}
            self.log.log_event("checkpoint_failed", failure, step=step)
            return
        value = {"seconds": round(self.clock.now() - start_s, 6), "bytes": written.bytes}
        self.log.log_event("checkpoint", value, step=step)
        await self.client.report_checkpoint(
            CheckpointReport(self.node_name, epoch, step, written.bytes, written.digest)
        )

    async def _write_file(self, path: Path, identity: CheckpointIdentity, state: State) -> WrittenCheckpoint:
        """Write a file in a thread, and return when the thread has ended, even if the call is cancelled before.

        A new membership epoch cancels the call. The node may then write the same file again, which two threads at once
        would damage.
        """
        writing = asyncio.ensure_future(
            self.clock.run_compute_function(
                lambda: write_checkpoint(path, identity, state, self.device, write=self.disk.write)
            )
        )
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            while not writing.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([writing])
            if not writing.cancelled():
                writing.exception()  # is known, and ends nothing: training goes back to an earlier step
            raise

    def list_steps(self) -> tuple[int, ...]:
        """Return the steps from which this node can continue.

        These are the steps of its complete checkpoints, and 0 if the trial began there: then it can always begin anew.
        """
        beginning = () if self.first_step else (0,)
        return (*beginning, *self.folder.list_steps_of_node(self.node_name, self.plan_digest))

    def read(self, step: int) -> State:
        """Return the state of this node before `step`.

        Raises:
            CheckpointError: the file can't be read, or is damaged.
        """
        return read_checkpoint(self.folder.node_path(step, self.node_name), self.plan_digest, self.device).state


def follow_announcements(
    checkpoints: NodeCheckpoints | None, membership: Membership
) -> AbstractAsyncContextManager[None]:
    """Return a context in which a node receives the steps of checkpoints that the coordinator announces.

    Nothing is received without checkpoints.
    """
    return checkpoints.schedule.follow_announcements(membership) if checkpoints else nullcontext()
