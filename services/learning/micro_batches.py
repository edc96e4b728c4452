"""Gradient accumulation: the gradient of a share of a batch, computed in parts one after another."""

from services.learning.datasets.base import LearningTask
from services.learning.layout import equal_vector_ranges
from services.learning.models import Model
from services.learning.randomness import BatchRandomness
from services.schema.arrays import Array, Vector, array_namespace


def accumulate_gradients(
    model: Model,
    task: LearningTask,
    params: Vector,
    x: Array,
    y: Array,
    randomness: BatchRandomness,
    part_count: int,
) -> tuple[float, Vector]:
    """Return the mean loss and the mean gradient of samples, computed in `part_count` micro-batches.

    The means of the micro-batches are weighted by their numbers of samples, which differ by one at most. The arrays of
    only one micro-batch are in memory at the same time.
    """
    samples, loss_sum, gradient_sum = len(x), 0.0, array_namespace(params).zeros_like(params)
    for number, part in enumerate(equal_vector_ranges(samples, min(part_count, samples))):
        loss, gradient = model.loss_and_grad(
            task, params, part.view(x), part.view(y), randomness._replace(micro_batch=number)
        )
        loss_sum += loss * part.size
        gradient_sum += gradient * params.dtype.type(part.size)
    return loss_sum / samples, gradient_sum / params.dtype.type(samples)
