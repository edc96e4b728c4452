"""Checkpoints of one node of a running trial: writing them, and reading the one to continue from."""

from dataclasses import dataclass
from pathlib import Path

from services.checkpoints.file_format import CheckpointIdentity
from services.checkpoints.files import read_checkpoint, write_checkpoint
from services.checkpoints.folder import CheckpointFolder
from services.checkpoints.state_tree import State
from services.runtime.clock import Clock
from services.runtime.device import ComputeDevice
from services.runtime.membership import CheckpointReport, MembershipClient
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
    """Checkpoints of one node, every few steps."""

    folder: CheckpointFolder
    plan_digest: str
    trial: str
    node_name: str
    period: int  # steps from one checkpoint to the next
    first_step: int  # of the trial; above 0, the trial has begun with the checkpoint of this step
    device: ComputeDevice
    client: MembershipClient
    clock: Clock
    log: RunLog

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due before `step`.

        A complete checkpoint is not written again after nodes have gone back to its step: it would be lost until all
        nodes have replaced their files.
        """
        is_multiple = step > 0 and step % self.period == 0
        return is_multiple and not self.folder.can_continue_from(step, self.node_name, self.plan_digest)

    async def write(self, step: int, epoch: int, samples: int, state: State) -> None:
        """Write the state before `step`, and report it to the coordinator, which completes the checkpoint.

        Raises:
            CheckpointError: the file can't be written.
        """
        start_s = self.clock.now()
        identity = CheckpointIdentity(
            plan_digest=self.plan_digest, trial=self.trial, node=self.node_name, step=step, epoch=epoch, samples=samples
        )
        path = self.folder.prepare_node_path(step, self.node_name)
        written = await self.clock.run_compute_function(lambda: write_checkpoint(path, identity, state, self.device))
        value = {"seconds": round(self.clock.now() - start_s, 6), "bytes": written.bytes}
        self.log.log_event("checkpoint", value, step=step)
        await self.client.report_checkpoint(
            CheckpointReport(self.node_name, epoch, step, written.bytes, written.digest)
        )

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
