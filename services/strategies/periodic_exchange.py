"""Parts of strategies whose workers train alone for several steps, and then sum vectors with a collective."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.collectives.execution.executor import all_reduce
from services.compressors import Compressor
from services.schema.arrays import HostArray
from services.schema.conflicts import KeyConflict
from services.strategies.base import Gradient, ScenarioSizes, WorkerContext


class SampleCounts(NamedTuple):
    """Samples that a worker and all workers together have trained on since an exchange."""

    own: int = 0
    all: int = 0

    def add_step(self, own_samples: int, all_samples: int) -> "SampleCounts":
        """Return the counts after one more step."""
        return SampleCounts(self.own + own_samples, self.all + all_samples)

    @property
    def own_share(self) -> float:
        """Share of the worker in the samples: its weight in a mean over all workers."""
        return self.own / self.all


NO_SAMPLES = SampleCounts()


def find_period_conflicts(period: int, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
    """Yield a conflict if a run ends before its first regular exchange."""
    if period > scenario_sizes.steps:
        message = (
            f"period ({period}) is longer than the run ({scenario_sizes.steps} steps); use at most "
            f"{scenario_sizes.steps}, or declare more epochs"
        )
        yield KeyConflict(("period",), message)


def is_last_step(worker_context: WorkerContext, step: int, gradient: Gradient) -> bool:
    """Return whether a step uses the last samples of the budget, so that it ends with an exchange."""
    samples = gradient.samples_before + worker_context.batch_size(step)
    return samples >= worker_context.updater.sample_budget


async def sum_over_workers(
    worker_context: WorkerContext, exchange_number: int, vectors: Sequence[HostArray], compressor: Compressor
) -> None:
    """Replace each vector in place by its sum over all workers.

    The vectors are summed one after another, so the collective sends vectors of the length for which it was planned.

    Args:
        worker_context: resources of this worker.
        exchange_number: number of the exchange. All messages of one exchange are complete before the next one starts.
        vectors: summands of this worker, each of shape (n,), in host memory.
        compressor: number format on the wire.
    """
    context = worker_context
    for index, vector in enumerate(vectors):
        number = exchange_number * len(vectors) + index
        await all_reduce(context.transport, context.workers, context.rank, context.schedule, number, vector, compressor)
