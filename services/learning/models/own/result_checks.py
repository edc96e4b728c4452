"""Checks of the results of a user's class for a few random samples, before anything starts."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from services.learning.datasets.base import LearningTask
from services.learning.models.base import Model
from services.learning.models.own.checked_samples import SAMPLE_COUNT, draw_samples, output_shape
from services.learning.own_code import UserCode, make_error
from services.schema.arrays import HostArray

SUM_TOLERANCE = 1e-3  # relative, of a loss that grows with the number of samples


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

    def check_all(self) -> None:
        """Check loss, gradient and outputs.

        Raises:
            OwnCodeError: a result is not finite, has a wrong shape or type, is a sum over samples, or a function has
                changed its arguments.
        """
        params = self.model.init_parameters(self.task, 0, self.dtype)
        self._check_finite(self.names.parameters, params)
        x, y = draw_samples(self.task, self.dtype)
        before = [array.copy() for array in (params, x, y)]
        self._check_loss(params, x, y)
        self._check_outputs(self.model.create_output_function(self.task, params, x)(x))
        if not all(np.array_equal(old, new) for old, new in zip(before, (params, x, y), strict=True)):
            raise make_error(
                self.code, "a method changes params, x or y in place, which others read; compute new arrays"
            )

    def _check_loss(self, params: HostArray, x: HostArray, y: HostArray) -> None:
        """Check loss and gradient; the loss must not grow with the number of samples: workers average it."""
        loss, gradient = self.model.loss_and_grad(self.task, params, x, y)
        self._check_finite(f"{self.names.loss}: the loss", np.asarray(loss))
        self._check_finite(f"{self.names.loss}: the gradient", gradient)
        twice, _ = self.model.loss_and_grad(self.task, params, np.concatenate([x, x]), np.concatenate([y, y]))
        if loss and abs(twice / loss - 2) < SUM_TOLERANCE:
            raise make_error(
                self.code,
                f"{self.names.loss}: with each sample twice, the loss grows from {loss:.6g} to {twice:.6g}; return "
                "mean loss and mean gradient over the samples, not sums",
            )

    def _check_finite(self, subject: str, values: HostArray) -> None:
        if not np.isfinite(values).all():
            raise make_error(self.code, f"{subject} is not finite for random samples; correct the computation")

    def _check_outputs(self, outputs: Any) -> None:
        expected = output_shape(self.task, SAMPLE_COUNT)
        shape, dtype = (getattr(outputs, key, None) for key in ("shape", "dtype"))
        if shape != expected or dtype != self.dtype:
            given = type(outputs).__name__ if shape is None else f"{shape} of {dtype}"
            message = f"{self.names.outputs} should return an array {expected} of {self.dtype}, not {given}"
            raise make_error(self.code, message)
