"""Checks of the results of a user's class for a few random samples, before anything starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from services.learning.datasets.base import LearningTask
from services.learning.models.base import Model
from services.learning.models.own.checked_samples import (
    SAMPLE_COUNT,
    describe_output_count,
    draw_samples,
    output_shape,
)
from services.learning.own_code import UserCode, make_error
from services.learning.randomness import BatchRandomness
from services.schema.arrays import HostArray

SAMPLE_COPIES = 8  # of each sample, to distinguish a sum over samples from a mean
MIN_SUM_GROWTH = SAMPLE_COPIES / 2  # of a sum; losses over pairs of samples grow by less than 3
CHECKED_STEPS = 3  # in all of which a sum grows, whatever dropout masks they draw


class FunctionNames(NamedTuple):
    """Names of the user's functions, for messages."""

    parameters: str
    loss: str
    outputs: str


@dataclass(frozen=True)
class ResultChecks:
    """Checks of loss, gradient and outputs of a model for a few samples, in one number format."""

    model: Model  # calls the user's class
    code: UserCode
    task: LearningTask
    dtype: str
    names: FunctionNames

    def check_outputs(self) -> None:
        """Check the initial parameters, and the outputs of an evaluation with them.

        Raises:
            OwnCodeError: a parameter is not finite, the outputs have a wrong shape or type, or a function has changed
                its arguments.
        """
        params, (x, _) = self._create_params(), draw_samples(self.task, self.dtype)
        self._check_finite(self.names.parameters, params)
        with self._check_arguments_are_unchanged(params, x):
            outputs = self.model.create_output_function(self.task, params, x)(x)
        expected = output_shape(self.task, SAMPLE_COUNT)
        shape, dtype = (getattr(outputs, key, None) for key in ("shape", "dtype"))
        if shape != expected or dtype != self.dtype:
            given = type(outputs).__name__ if shape is None else f"{shape} of {dtype}"
            message = (
                f"{self.names.outputs} should return an array {expected} of {self.dtype} for {SAMPLE_COUNT} samples, "
                f"not {given}; {describe_output_count(self.task)}"
            )
            raise make_error(self.code, message)

    def check_loss(self) -> None:
        """Check loss and gradient of a training step.

        Raises:
            OwnCodeError: a result is not finite, or a function has changed its arguments.
        """
        params, (x, y) = self._create_params(), draw_samples(self.task, self.dtype)
        with self._check_arguments_are_unchanged(params, x, y):
            loss, gradient = self.model.loss_and_grad(self.task, params, x, y)
        self._check_finite(f"{self.names.loss}: the loss", np.asarray(loss))
        self._check_finite(f"{self.names.loss}: the gradient", gradient)

    def check_mean(self) -> None:
        """Check that the loss does not grow with the number of samples: workers average it.

        With eight copies of each sample, a sum grows about eightfold, also if each copy has another dropout mask. The
        growth in several steps decides, so a mean that happens to be close to zero is accepted.

        Raises:
            OwnCodeError: the loss is a sum over samples.
        """
        growths = (self._measure_loss_growth(step) for step in range(CHECKED_STEPS))
        before, after = next(growths)
        if all(abs(many) > MIN_SUM_GROWTH * abs(few) > 0 for few, many in ((before, after), *growths)):
            raise make_error(
                self.code,
                f"{self.names.loss}: with {SAMPLE_COPIES} copies of each sample, the loss grows from {before:.6g} to "
                f"{after:.6g}; return mean loss and mean gradient over the samples, not sums",
            )

    def _measure_loss_growth(self, step: int) -> tuple[float, float]:
        """Return the loss of a step, for a few samples and for several copies of them."""
        params, (x, y) = self._create_params(), draw_samples(self.task, self.dtype)
        copies_x, copies_y = (np.concatenate([array] * SAMPLE_COPIES) for array in (x, y))
        few, many = (
            self.model.loss_and_grad(self.task, params, *samples, BatchRandomness(step=step))[0]
            for samples in ((x, y), (copies_x, copies_y))
        )
        return few, many

    def _create_params(self) -> HostArray:
        return self.model.init_parameters(self.task, 0, self.dtype)

    def _check_finite(self, subject: str, values: HostArray) -> None:
        if not np.isfinite(values).all():
            raise make_error(self.code, f"{subject} is not finite for random samples; correct the computation")

    @contextmanager
    def _check_arguments_are_unchanged(self, *arrays: HostArray) -> Iterator[None]:
        before: list[Any] = [array.copy() for array in arrays]
        yield
        if not all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True)):
            raise make_error(
                self.code, "a method changes params, x or y in place, which others read; compute new arrays"
            )
