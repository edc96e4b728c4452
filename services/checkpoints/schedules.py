"""Schedules of checkpoints: the steps before which the nodes of a trial write them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.runtime.clock import Clock
from services.runtime.membership import CheckpointProposal, Membership, MembershipClient


class CheckpointSchedule(ABC):
    """Steps before which one node writes checkpoints; all nodes of a membership epoch have the same steps."""

    @abstractmethod
    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due before `step`."""

    @asynccontextmanager
    async def follow_announcements(self, membership: Membership) -> AsyncIterator[None]:  # noqa: ARG002 - see subclass
        """Receive the steps that the coordinator announces in a membership epoch, during the `async with` block."""
        yield

    async def propose_next(self, step: int) -> None:  # noqa: B027 - see subclass
        """Propose a step of the next checkpoint, if this node decides about it and an interval has passed.

        Args:
            step: next step of this worker, which has finished all earlier ones.
        """

    def restart_interval(self) -> None:  # noqa: B027 - see subclass
        """Measure the interval to the next checkpoint from now on."""


@dataclass(frozen=True)
class StepSchedule(CheckpointSchedule):
    """A checkpoint after every `steps` steps."""

    steps: int

    def is_due(self, step: int) -> bool:
        return step > 0 and step % self.steps == 0


@dataclass
class IntervalSchedule(CheckpointSchedule):
    """A checkpoint after every `interval_s` seconds of training, which the first worker of the epoch measures.

    Nodes have different clocks and speeds, so one worker decides for all:

    1. When the interval has passed, the worker proposes the step after the exchange that it begins next.
    2. The coordinator announces the step to all nodes, and each node confirms that it knows the step.
    3. The coordinator replies to the worker, which has waited, and goes on.

    No node can finish the exchange without the worker that proposes. So no node has passed the step when it learns of
    it. A new membership epoch cancels the announcement; the time goes on.
    """

    interval_s: float  # virtual seconds from the end of a checkpoint to the next proposal
    exchange_period: int  # steps from one exchange of all workers to the next
    training_steps: int  # of the whole training; no later step is proposed
    node_name: str
    client: MembershipClient
    clock: Clock
    _membership: Membership = field(default_factory=lambda: Membership(0, ()))
    _announced_step: int = 0  # newest of the current epoch; 0: none yet
    _interval_start_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.restart_interval()

    def is_due(self, step: int) -> bool:
        return step > 0 and step == self._announced_step

    @asynccontextmanager
    async def follow_announcements(self, membership: Membership) -> AsyncIterator[None]:
        self._membership, self._announced_step = membership, 0
        async with asyncio.TaskGroup() as group:
            receiver = group.create_task(self._receive_announcements())
            yield
            receiver.cancel()

    async def _receive_announcements(self) -> None:
        """Receive announced steps; waiting for the next one confirms the one before."""
        while True:
            self._announced_step = await self.client.await_checkpoint_step(self._membership.epoch, self._announced_step)

    async def propose_next(self, step: int) -> None:
        next_step = step + self.exchange_period
        is_proposer = self._membership.workers[0] == self.node_name
        is_possible = step % self.exchange_period == 0 and next_step <= self.training_steps
        if is_proposer and is_possible and self.clock.now() - self._interval_start_s >= self.interval_s:
            await self.client.propose_checkpoint(CheckpointProposal(self.node_name, self._membership.epoch, next_step))

    def restart_interval(self) -> None:
        self._interval_start_s = self.clock.now()
