"""Random samples of a learning task, with which the user's code is checked before anything starts."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.layout import Shape
from services.schema.arrays import HostArray

SAMPLE_COUNT = 4


class CheckedSamples(NamedTuple):
    """Random samples x (SAMPLE_COUNT, *inputs) with targets y, as a dataset of the task would have them."""

    x: HostArray
    y: HostArray


def draw_samples(learning_task: LearningTask, dtype: npt.DTypeLike) -> CheckedSamples:
    """Return random samples of a task: normal values or tokens, and labels, normal values or tokens as targets."""
    rng, outputs = np.random.default_rng(0), learning_task.outputs
    shape = (SAMPLE_COUNT, *learning_task.inputs)
    if learning_task.loss == "next_token":
        return CheckedSamples(rng.integers(outputs, size=shape), rng.integers(outputs, size=shape))
    x = rng.standard_normal(shape).astype(dtype)
    if learning_task.loss == "cross_entropy":
        return CheckedSamples(x, rng.integers(outputs, size=SAMPLE_COUNT))
    return CheckedSamples(x, rng.standard_normal((SAMPLE_COUNT, outputs)).astype(dtype))


def output_shape(learning_task: LearningTask, sample_count: int) -> Shape:
    """Return the shape of the outputs for a number of samples: scores of classes or tokens, or values."""
    positions = learning_task.inputs if learning_task.loss == "next_token" else ()
    return (sample_count, *positions, learning_task.outputs)


def describe_output_count(learning_task: LearningTask) -> str:
    """Return in words how many outputs a model has for each sample, or for each position of it, and why."""
    if learning_task.loss == "next_token":
        return f"the dataset has {learning_task.outputs} tokens: one score per token for each position of a sample"
    if learning_task.loss == "cross_entropy":
        return f"the dataset has {learning_task.outputs} classes: one score per class for each sample"
    return f"the dataset has {learning_task.outputs} target value{'s' * (learning_task.outputs > 1)} per sample"
