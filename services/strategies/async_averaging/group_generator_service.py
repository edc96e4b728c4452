"""Service that forms groups of ready workers; it runs on worker 0, which trains at the same time."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from services.runtime.transport import MessageKind, MessageTag, Transport
from services.strategies.async_averaging.group_generator import FormGroupAction, GroupGenerator
from services.strategies.async_averaging.group_messages import WorkerGroup, make_group_messages

SERVICE_RANK = 0  # of the worker on whose node the service runs


@dataclass
class GroupGeneratorService:
    """Service that receives the reports of all workers, and sends every worker its groups.

    The worker of the same node calls the service directly.
    """

    machine: GroupGenerator
    transport: Transport
    worker_names: Sequence[str]  # node names by rank
    _task: asyncio.Task[None] | None = None
    _send_tasks: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _reported_steps: dict[int, int] = field(default_factory=dict)  # last report by rank, of other workers
    _own_group: asyncio.Future[WorkerGroup] | None = None  # for which the worker of this node waits

    def start(self) -> None:
        """Start to serve the other workers, in a task of the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve_workers())
        self._task.add_done_callback(self._pass_error_to_own_worker)

    async def report_own_step(self, samples: int, next_samples: int) -> WorkerGroup:
        """Report a finished step of the worker of this node, and return its next group."""
        self._own_group = asyncio.get_running_loop().create_future()
        if self._task is not None and self._task.done():
            self._pass_error_to_own_worker(self._task)
        self._announce_groups(self.machine.handle_ready(SERVICE_RANK, samples, next_samples))
        return await self._own_group

    async def leave_and_serve_others(self) -> None:
        """Report that the worker of this node leaves, and return when all other workers have left."""
        self._announce_groups(self.machine.handle_leave(SERVICE_RANK))
        if self._task is not None:
            await self._task

    async def _serve_workers(self) -> None:
        async with self._send_tasks as group:
            for rank in range(len(self.worker_names)):
                if rank != SERVICE_RANK:
                    group.create_task(self._serve_worker(rank))

    async def _serve_worker(self, rank: int) -> None:
        """Receive the reports of another worker until it leaves."""
        for step in count():
            tags = (MessageTag(step, MessageKind.READY), MessageTag(step, MessageKind.LEAVE))
            message = await self.transport.receive(self.worker_names[rank], *tags)
            if message.tag.kind == MessageKind.LEAVE:
                break
            self._reported_steps[rank] = step
            groups = self.machine.handle_ready(rank, message.samples, message.pending_samples)
            self._announce_groups(groups)
        self._announce_groups(self.machine.handle_leave(rank))

    def _announce_groups(self, actions: Iterable[FormGroupAction]) -> None:
        """Send every member its group. The service runs while a worker waits for its group."""
        for action in actions:
            for rank in action.ranks:
                group = WorkerGroup.of_member(action, rank)
                if rank != SERVICE_RANK:
                    self._send_tasks.create_task(self._send_group(rank, self._reported_steps[rank], group))
                elif self._own_group is not None and not self._own_group.done():
                    self._own_group.set_result(group)

    async def _send_group(self, rank: int, step: int, group: WorkerGroup) -> None:
        for message in make_group_messages(step, group, len(self.worker_names)):
            await self.transport.send(self.worker_names[rank], message)

    def _pass_error_to_own_worker(self, task: "asyncio.Task[None]") -> None:
        """End the wait of the worker of this node if the service has failed.

        A worker that does not wait gets the error with its next call.
        """
        error = None if task.cancelled() else task.exception()  # retrieved in any case, or Python would print it
        if error is not None and self._own_group is not None and not self._own_group.done():
            self._own_group.set_exception(error)
