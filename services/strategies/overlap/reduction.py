"""Sum of a gradient over all workers, part by part, during the backward pass that computes the gradient."""

import asyncio
from typing import NamedTuple

from services.collectives.base import TransferSchedule
from services.collectives.execution.executor import GroupMember, run_transfers
from services.compressors import Compressor
from services.runtime.run_log import StepTimer
from services.schema.arrays import HostArray
from services.strategies.overlap.base import BucketPart, Overlap

# Every part has the numbers of steps in a channel of its own. So the numbers of messages go on where a switch of the
# strategy ends the overlap.
FIRST_PART_CHANNEL = 2


class BucketCollective(NamedTuple):
    """Collective that sums parts of the gradients of all workers."""

    member: GroupMember  # this worker among all workers
    schedule: TransferSchedule
    compressor: Compressor


class BucketExchange(NamedTuple):
    """Exchange of a part of a bucket: begin and end on the clock of the step timer, and payload bytes sent."""

    bucket: int
    part: int  # number of the part within its bucket
    begin_s: float
    end_s: float
    bytes_sent: int


class BucketReduction:
    """Weighted sum of one step's gradient over all workers, which begins before the backward pass ends.

    The worker writes the gradient into `vector`, which is in host memory, and reports each bucket in turn. The parts
    are summed one after another, in the order of the overlap.
    """

    def __init__(
        self,
        collective: BucketCollective,
        step: int,
        overlap: Overlap,
        vector: HostArray,
        weight: float,
        step_timer: StepTimer,
    ) -> None:
        """Begin the sum of a gradient.

        Args:
            collective: sums a part over all workers.
            step: training step of the gradient.
            overlap: buckets of the gradient, and the order in which their parts are exchanged.
            vector: receives the gradient, and contains the sum afterwards; shape (n,).
            weight: factor of this worker's gradient in the sum.
            step_timer: timer of the step, to which communication that the compute hides is added.
        """
        self.vector = vector
        self.buckets = overlap.gradient_buckets
        self._order = overlap.exchange_order
        self._collective = collective
        self._step = step
        self._weight = weight
        self._step_timer = step_timer
        self._ready = [asyncio.Event() for _ in self.buckets]
        self._reported_count = 0
        self._exchanges: list[BucketExchange] = []
        self._task = asyncio.create_task(self._sum_parts())

    def report_bucket(self) -> None:
        """Report that the next bucket of the gradient is in `vector`."""
        self._ready[self._reported_count].set()
        self._reported_count += 1

    @property
    def exchange_ends_s(self) -> tuple[float, ...]:
        """Time at which each bucket had been summed, by bucket, on the clock of the step timer."""
        ends_s = {exchange.bucket: exchange.end_s for exchange in self._exchanges}
        return tuple(ends_s[bucket] for bucket in range(len(self.buckets)))

    @property
    def exchanges(self) -> tuple[BucketExchange, ...]:
        """Exchanges of all parts so far, in their order."""
        return tuple(self._exchanges)

    async def wait_for_sum(self) -> HostArray:
        """Wait until all buckets have been summed, and return the vector.

        The part of the communication for which the worker does not wait here is added to the step timer.

        Raises:
            NetworkError: a message was not sent or received.
        """
        start_s = self._step_timer.clock.now()
        await self._task
        exposed_s = self._step_timer.clock.now() - start_s
        communication_s = sum(exchange.end_s - exchange.begin_s for exchange in self._exchanges)
        self._step_timer.add_seconds("hidden", max(0.0, communication_s - exposed_s))
        return self.vector

    async def cancel(self) -> None:
        """End the sum without a result."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _sum_parts(self) -> None:
        clock, traffic = self._step_timer.clock, self._collective.member.transport.traffic
        part_counts = [0] * len(self.buckets)
        for number, part in enumerate(self._order):
            await self._ready[part.bucket].wait()
            begin_s, bytes_before = clock.now(), traffic.payload_bytes
            await self._sum_part(FIRST_PART_CHANNEL + number, part)
            bytes_sent = traffic.payload_bytes - bytes_before
            exchange = BucketExchange(part.bucket, part_counts[part.bucket], begin_s, clock.now(), bytes_sent)
            self._exchanges.append(exchange)
            part_counts[part.bucket] += 1

    async def _sum_part(self, channel: int, part: BucketPart) -> None:
        entries = part.vector_range.view(self.vector)
        entries *= entries.dtype.type(self._weight)
        member, schedule, compressor = self._collective
        payloads = await run_transfers(member._replace(channel=channel), schedule, self._step, entries, compressor)
        payloads.round_sums_like_receiver()
