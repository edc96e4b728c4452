"""Sum of a gradient over all workers, bucket by bucket, beside the backward pass that computes the gradient."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from services.collectives.base import TransferSchedule
from services.collectives.execution.executor import all_reduce
from services.compressors import Compressor
from services.runtime.run_log import StepTimer
from services.runtime.transport import Transport
from services.schema.arrays import HostArray
from services.strategies.overlap.base import GradientBucket


class BucketCollective(NamedTuple):
    """Collective that sums the buckets of all workers."""

    transport: Transport
    node_names: Sequence[str]  # of all workers, by rank
    rank: int
    schedule: TransferSchedule
    compressor: Compressor


class BucketReduction:
    """Weighted sum of one step's gradient over all workers, which begins before the backward pass ends.

    The worker writes the gradient into `vector`, which is in host memory, and reports each bucket in turn. The buckets
    are summed one after another.
    """

    def __init__(
        self,
        collective: BucketCollective,
        step: int,
        buckets: Sequence[GradientBucket],
        vector: HostArray,
        weight: float,
        step_timer: StepTimer,
    ) -> None:
        """Begin the sum of a gradient.

        Args:
            collective: sums a bucket over all workers.
            step: training step of the gradient.
            buckets: of the gradient, in the order of the backward pass.
            vector: receives the gradient, and contains the sum afterwards; shape (n,).
            weight: factor of this worker's gradient in the sum.
            step_timer: timer of the step, to which communication that the compute hides is added.
        """
        self.vector = vector
        self.buckets = tuple(buckets)
        self._collective = collective
        self._step = step
        self._weight = weight
        self._step_timer = step_timer
        self._ready = asyncio.Semaphore(0)
        self._communication_s = 0.0
        self._task = asyncio.create_task(self._sum_buckets())

    def report_bucket(self) -> None:
        """Report that the next bucket of the gradient is in `vector`."""
        self._ready.release()

    async def wait_for_sum(self) -> HostArray:
        """Wait until all buckets have been summed, and return the vector.

        The part of the communication for which the worker does not wait here is added to the step timer.

        Raises:
            NetworkError: a message was not sent or received.
        """
        start_s = self._step_timer.clock.now()
        await self._task
        exposed_s = self._step_timer.clock.now() - start_s
        self._step_timer.add_seconds("hidden", max(0.0, self._communication_s - exposed_s))
        return self.vector

    async def cancel(self) -> None:
        """End the sum without a result."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _sum_buckets(self) -> None:
        for number, bucket in enumerate(self.buckets):
            await self._ready.acquire()
            start_s = self._step_timer.clock.now()
            entries = bucket.vector_range.view(self.vector)
            entries *= entries.dtype.type(self._weight)
            transport, node_names, rank, schedule, compressor = self._collective
            message_step = self._step * len(self.buckets) + number
            await all_reduce(transport, node_names, rank, schedule, message_step, entries, compressor)
            self._communication_s += self._step_timer.clock.now() - start_s
