"""Parts of strategies whose workers train alone for several steps, and then sum vectors with a collective."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.compressors import Compressor, CompressorState, applies_momentum
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict
from services.strategies.base import Gradient, ScenarioSizes, WorkerContext
from services.strategies.compressor_fit import find_shared_scale_conflicts
from services.strategies.vector_sums import Summand, VectorSum


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


def find_compressor_conflicts(
    strategy_kind: str, compressor: Compressor, *, averages_optimiser_state: bool
) -> Iterator[KeyConflict]:
    """Yield the conflicts of a compressor with an exchange of parameters."""
    if applies_momentum(compressor):
        why = f"compressor {compressor.kind} adds momentum to gradients, but {strategy_kind} exchanges parameters"
        yield KeyConflict(("compress",), f"{why}; use error_feedback with top_k")
    yield from find_shared_scale_conflicts({"compress": compressor})
    if averages_optimiser_state and compressor.aggregation != "partial_sums":
        why = f"compressor {compressor.kind} is for differences of parameters, not for the state of an optimiser"
        remedy = "use average_optimiser_state: false, or compress with fp16 or bf16"
        yield KeyConflict(("average_optimiser_state",), f"{why}; {remedy}")


class SummedVectors(NamedTuple):
    """Sums of vectors over all workers, and the compressor's state for the next exchange."""

    vectors: list[Vector]  # on the device
    compressor_state: CompressorState


async def sum_over_workers(
    worker_context: WorkerContext,
    vector_sum: VectorSum,
    exchange_number: int,
    vectors: Sequence[Vector],
    weight: float,
    compressor_state: CompressorState,
) -> SummedVectors:
    """Return the weighted sum of each vector over all workers.

    The vectors are summed one after another, so the collective sends vectors of the length for which it was planned.

    Args:
        worker_context: resources of this worker.
        vector_sum: way in which workers sum their vectors.
        exchange_number: number of the exchange. All messages of one exchange are complete before the next one starts.
        vectors: summands of this worker, each of shape (n,), on the device. Only a compressor without a state gets
            several.
        weight: factor of this worker's vectors.
        compressor_state: the compressor's state after the previous exchange.
    """
    context, sums = worker_context, []
    for index, vector in enumerate(vectors):
        number, summand = exchange_number * len(vectors) + index, Summand(vector, weight)
        total, compressor_state = await vector_sum.add_vectors(
            context.group_member, context.schedule, number, summand, compressor_state, context.device
        )
        sums.append(context.device.to_device(total))
    return SummedVectors(sums, compressor_state)
