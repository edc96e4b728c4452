"""Announcement of the step of the next checkpoint: the coordinator passes a worker's proposal to all nodes."""

import asyncio
from dataclasses import dataclass, field

from services.coordinator.membership_machine import MembershipStateMachine
from services.runtime.clock import Clock
from services.runtime.membership import CheckpointProposal
from services.runtime.run_log import RunLog


@dataclass
class CheckpointAnnouncements:
    """Passes the proposed step of the next checkpoint to all nodes, and waits until all have confirmed it.

    A checkpoint that only some nodes know of is never complete. So an announcement that a loss interrupts does no harm.
    """

    machine: MembershipStateMachine
    clock: Clock
    log: RunLog
    _announced: tuple[int, int] = (0, 0)  # newest proposal: epoch and step
    _confirmed: dict[str, tuple[int, int]] = field(default_factory=dict)  # by node: newest known epoch and step
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def propose(self, proposal: CheckpointProposal) -> None:
        """Announce a proposed step, and return when all nodes of its epoch have confirmed it.

        Nodes that are lost or have left need not confirm it. The call does not return if another epoch begins first:
        the caller cancels it.
        """
        if proposal.epoch != self.machine.membership.epoch:
            await asyncio.Event().wait()
        start_s = self.clock.now()
        async with self._changed:
            self._announced = max(self._announced, (proposal.epoch, proposal.step))
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._is_confirmed_by_all(proposal))
        value = {"by": proposal.node_name, "seconds": round(self.clock.now() - start_s, 6)}
        self.log.log_event("checkpoint_announced", value, step=proposal.step)

    async def await_step(self, node_name: str, epoch: int, known_step: int) -> int:
        """Record that a node knows an announced step of an epoch, wait for a later one, and return it."""
        async with self._changed:
            self._confirmed[node_name] = max(self._confirmed.get(node_name, (0, 0)), (epoch, known_step))
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._announced[0] == epoch and self._announced[1] > known_step)
            return self._announced[1]

    async def handle_departure(self) -> None:
        """Check again whether all nodes have confirmed the step, after one of them has left or was lost."""
        async with self._changed:
            self._changed.notify_all()

    def _is_confirmed_by_all(self, proposal: CheckpointProposal) -> bool:
        """Return whether all nodes that still take part in the epoch of a proposal know its step."""
        if self.machine.membership.epoch != proposal.epoch:
            return False
        expected = (proposal.epoch, proposal.step)
        return all(self._confirmed.get(name, (0, 0)) >= expected for name in self.machine.active_members)
