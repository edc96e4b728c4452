"""Membership of a training: the workers that take part, in numbered epochs, and the calls by which it changes.

A *membership epoch* is a period of a training in which its workers stay the same. It begins with epoch 0, and a new one
begins when a worker is lost or joins again.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Membership:
    """Workers of one membership epoch."""

    epoch: int
    workers: tuple[str, ...]  # node names; the rank of a worker is its position
    joined: tuple[str, ...] = ()  # workers and servers that have been started again since the epoch before
    # Whether nodes break off the step in progress, and agree on a step from which they continue; otherwise they go on.
    needs_common_step: bool = True

    @property
    def continuing_workers(self) -> tuple[str, ...]:
        """Workers that were members of the epoch before, too."""
        return tuple(name for name in self.workers if name not in self.joined)


@dataclass(frozen=True)
class RecoveryReport:
    """Steps from which a node can continue in a new membership epoch."""

    node_name: str
    epoch: int
    steps: tuple[int, ...]  # each the next step of a state that the node has kept; empty if it has none


@dataclass(frozen=True)
class RecoveryDecision:
    """Step from which all nodes continue in a new membership epoch."""

    epoch: int
    first_step: int
    state_source: str = ""  # worker that sends its state to `state_receivers`; empty if there are none
    state_receivers: tuple[str, ...] = ()  # workers without a state


@dataclass(frozen=True)
class CheckpointReport:
    """A checkpoint file that a node has written."""

    node_name: str
    epoch: int
    step: int  # next step of the state in the file
    bytes: int
    digest: str


@dataclass(frozen=True)
class CheckpointProposal:
    """Step of the next checkpoint that a worker proposes, because the interval between checkpoints has passed."""

    node_name: str
    epoch: int
    step: int  # next step of the state that all nodes write


class MembershipClient(ABC):
    """Calls with which a node takes part in changes of the membership."""

    @abstractmethod
    async def send_heartbeat(self) -> None:
        """Show the coordinator that this node is alive.

        Raises:
            EvictedError: the coordinator has considered this node lost, and training goes on without it.
        """

    @abstractmethod
    async def await_membership(self, known_epoch: int) -> Membership:
        """Wait until a membership epoch after `known_epoch` begins, and return its membership."""

    @abstractmethod
    async def report_recovery_steps(self, report: RecoveryReport) -> RecoveryDecision:
        """Report from which steps this node can continue, and return the decision.

        The reply comes when all nodes of the epoch have reported. If a further epoch begins before, the reply is its
        decision to wait for `await_membership`: an epoch that is newer than that of the report.
        """

    @abstractmethod
    async def report_checkpoint(self, report: CheckpointReport) -> None:
        """Report a file that this node has written; the checkpoint is complete when all nodes have reported theirs.

        Raises:
            CheckpointError: the coordinator, in the same process, can't write the manifest.
            HostError: the coordinator, in another process, can't write the manifest.
        """

    @abstractmethod
    async def propose_checkpoint(self, proposal: CheckpointProposal) -> None:
        """Let the coordinator announce the step of the next checkpoint, and wait until all nodes have confirmed it.

        Lost nodes, and nodes that have left the run, do not have to confirm it. If a further epoch begins before, the
        call does not return: it is to be cancelled by the caller, which learns of the epoch by `await_membership`.
        """

    @abstractmethod
    async def await_checkpoint_step(self, epoch: int, known_step: int) -> int:
        """Confirm the newest announced step of a checkpoint, wait for a later one in this epoch, and return it.

        Args:
            epoch: membership epoch in which this node works.
            known_step: newest announced step that this node knows; 0 if it knows none of this epoch.
        """
