"""Client of the service that forms groups, for the worker algorithms of this folder."""

from dataclasses import dataclass

from services.runtime.transport import Message, MessageKind, MessageTag
from services.strategies.async_averaging.group_generator import GroupGenerator
from services.strategies.async_averaging.group_generator_service import SERVICE_RANK, GroupGeneratorService
from services.strategies.async_averaging.group_messages import WorkerGroup, make_report_message, receive_group
from services.strategies.base import WorkerContext


@dataclass(frozen=True)
class GroupClient:
    """Client with which a worker reports its steps, and gets its groups."""

    context: WorkerContext
    service: GroupGeneratorService | None  # which runs on this node; None: it runs on another node

    @classmethod
    def of_worker(cls, context: WorkerContext, group_size: int, connect_within: int) -> "GroupClient":
        """Return the client of a worker, with the service if it runs on the worker's node."""
        if context.rank != SERVICE_RANK:
            return cls(context, None)
        machine = GroupGenerator(len(context.workers), group_size, connect_within, context.updater.sample_budget)
        return cls(context, GroupGeneratorService(machine, context.transport, context.workers))

    def start_service(self) -> None:
        """Start the service if it runs on the node of this worker."""
        if self.service is not None:
            self.service.start()

    async def report_step(self, step: int, samples: int) -> WorkerGroup:
        """Report that this worker has finished a step on `samples` samples, and return its next group."""
        context, transport = self.context, self.context.transport
        next_samples = _count_equal_share(context.batch_size(step + 1), context.rank, len(context.workers))
        if self.service is not None:
            return await self.service.report_own_step(samples, next_samples)
        await transport.send(self._service_node, make_report_message(step, samples, next_samples))
        return await receive_group(transport, self._service_node, step, len(self.context.workers))

    async def report_leaving(self, leave_step: int) -> None:
        """Report that this worker leaves before `leave_step`.

        On the node of the service, return when all other workers have left.
        """
        if self.service is not None:
            await self.service.leave_and_serve_others()
            return
        leave = Message(MessageTag(leave_step, MessageKind.LEAVE))
        await self.context.transport.send(self._service_node, leave)

    @property
    def _service_node(self) -> str:
        return self.context.workers[SERVICE_RANK]


def _count_equal_share(batch_size: int, rank: int, worker_count: int) -> int:
    """Return the samples of a worker in a batch that is divided equally: the workers of low rank have one more."""
    share, rest = divmod(batch_size, worker_count)
    return share + (rank < rest)
