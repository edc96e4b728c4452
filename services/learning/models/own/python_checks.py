"""Checks of a class of the user that computes with NumPy or CuPy: methods, shapes, types and gradient."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.layout import ParameterLayout, Shape
from services.learning.models.base import Model
from services.learning.models.own.checked_samples import SAMPLE_COUNT, CheckedSamples, output_shape
from services.learning.own_code import OwnCodeError, UserCode, describe_definition
from services.schema.arrays import HostArray

METHODS = ("parameter_shapes", "init_parameters", "loss_and_gradients", "outputs")
DIFFERENCE = 1e-5  # length of the steps of the finite difference
GRADIENT_TOLERANCE = 1e-3  # relative
GRADIENT_NOISE = 1e-7  # rounding error of the finite difference
SUM_TOLERANCE = 1e-3  # relative, of a loss that grows with the number of samples
SHIFT = 0.01  # of initial parameters: at zero, functions such as relu may have no derivative


def make_error(code: UserCode, message: str) -> OwnCodeError:
    """Return the error for wrong results of the user's class."""
    return OwnCodeError(("module",), f"{describe_definition(code)}: {code.name}: {message}")


def check_methods(code: UserCode, own_model: object) -> None:
    """Check that an object has all methods of `OwnModel`.

    Raises:
        OwnCodeError: methods are missing.
    """
    missing = [name for name in METHODS if not callable(getattr(own_model, name, None))]
    if missing:
        needed = ", ".join(METHODS)
        raise make_error(code, f"there is no method {' and no method '.join(missing)}; a model has {needed}")


def check_shapes(code: UserCode, shapes: Any) -> dict[str, Shape]:
    """Return the shapes of the user's parameter arrays, by name.

    Raises:
        OwnCodeError: they are no shapes, or there are none.
    """
    is_valid = isinstance(shapes, Mapping) and all(isinstance(name, str) for name in shapes)
    if not is_valid or not shapes or not all(map(_is_shape, shapes.values())):
        message = (
            f'parameter_shapes should return a dict of names and shapes, such as {{"weight": (64, 10)}}, not {shapes}'
        )
        raise make_error(code, message)
    return {name: tuple(int(size) for size in shape) for name, shape in shapes.items()}


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, tuple | list):
        return False
    return all(isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0 for size in shape)


def check_arrays(
    code: UserCode, method: str, arrays: Any, layout: ParameterLayout, dtype: npt.DTypeLike | None = None
) -> None:
    """Check that a method has returned one array for each array of the layout, with its shape.

    Args:
        code: the user's class.
        method: name of the method, for messages.
        arrays: returned arrays by name.
        layout: names and shapes that `parameter_shapes` has returned.
        dtype: type that the arrays must have; None: any.

    Raises:
        OwnCodeError: an array is missing, or has another shape or type.
    """
    names = [name for name, _ in layout.arrays]
    if not isinstance(arrays, Mapping) or set(arrays) != set(names):
        given = sorted(map(str, arrays)) if isinstance(arrays, Mapping) else type(arrays).__name__
        raise make_error(code, f"{method} should return one array for each of {', '.join(names)}, not {given}")
    for name, shape in layout.arrays:
        given_shape, given_type = (getattr(arrays[name], key, None) for key in ("shape", "dtype"))
        if given_shape != shape:
            raise make_error(code, f"{method}: {name} has the shape {given_shape}; parameter_shapes states {shape}")
        if dtype is not None and given_type != dtype:
            raise make_error(
                code,
                f"{method}: {name} has the type {given_type}, the parameters {dtype}; compute in the type of the "
                "parameters, or convert the result with astype (Ensayo checks float32 and float64)",
            )


def check_results(
    model: Model, code: UserCode, learning_task: LearningTask, samples: CheckedSamples, dtype: npt.DTypeLike
) -> None:
    """Check loss, gradient and outputs for a few samples.

    Raises:
        OwnCodeError: a result is not finite, has a wrong shape or type, or a method has changed its arguments.
    """
    params = model.init_parameters(learning_task, 0, dtype)
    _check_finite(code, "init_parameters", params)
    arguments = (params, samples.x, samples.y)
    before = [array.copy() for array in arguments]
    loss, gradient = model.loss_and_grad(learning_task, *arguments)
    _check_finite(code, "loss_and_gradients: the loss", np.asarray(loss))
    _check_finite(code, "loss_and_gradients: the gradient", gradient)
    _check_is_mean(model, code, learning_task, arguments, loss)
    outputs = model.create_output_function(learning_task, params, samples.x)(samples.x)
    _check_outputs(code, learning_task, outputs, dtype)
    if not all(np.array_equal(old, new) for old, new in zip(before, arguments, strict=True)):
        raise make_error(code, "a method changes params, x or y in place, which others read; compute new arrays")


def _check_finite(code: UserCode, subject: str, values: HostArray) -> None:
    if not np.isfinite(values).all():
        raise make_error(code, f"{subject} is not finite for random samples; correct the computation")


def _check_is_mean(
    model: Model,
    code: UserCode,
    learning_task: LearningTask,
    arguments: tuple[HostArray, HostArray, HostArray],
    loss: float,
) -> None:
    """Check that the loss does not grow with the number of samples: workers average it over their shares."""
    params, x, y = arguments
    twice, _ = model.loss_and_grad(learning_task, params, np.concatenate([x, x]), np.concatenate([y, y]))
    if loss and abs(twice / loss - 2) < SUM_TOLERANCE:
        raise make_error(
            code,
            f"loss_and_gradients: with each sample twice, the loss grows from {loss:.6g} to {twice:.6g}; return mean "
            "loss and mean gradient over the samples, not sums",
        )


def _check_outputs(code: UserCode, learning_task: LearningTask, outputs: Any, dtype: npt.DTypeLike) -> None:
    expected = output_shape(learning_task, SAMPLE_COUNT)
    if np.shape(outputs) != expected or getattr(outputs, "dtype", None) != dtype:
        given = f"{np.shape(outputs)} of {getattr(outputs, 'dtype', type(outputs).__name__)}"
        raise make_error(code, f"outputs should return an array {expected} of {dtype}, not {given}")


def check_gradient_along_random_direction(
    model: Model, code: UserCode, learning_task: LearningTask, samples: CheckedSamples
) -> None:
    """Compare the gradient with central differences of the loss along one random direction, in fp64.

    Raises:
        OwnCodeError: they differ by more than a thousandth.
    """
    rng = np.random.default_rng(0)
    params = model.init_parameters(learning_task, 0, "float64")
    params = params + SHIFT * rng.standard_normal(params.size)
    direction = rng.standard_normal(params.size)
    direction /= np.linalg.norm(direction)
    _, gradient = model.loss_and_grad(learning_task, params, *samples)
    after, before = (
        model.loss_and_grad(learning_task, params + sign * DIFFERENCE * direction, *samples)[0] for sign in (1, -1)
    )
    expected, given = (after - before) / (2 * DIFFERENCE), float(gradient @ direction)
    if abs(expected - given) > GRADIENT_TOLERANCE * max(abs(expected), abs(given)) + GRADIENT_NOISE:
        raise make_error(
            code,
            f"loss_and_gradients: the gradient does not fit the loss: along a random direction the loss changes by "
            f"{expected:.6g}, the gradient states {given:.6g}; correct the gradient (that of the mean loss over the "
            "samples), or write check_gradient: false if the difference is intended",
        )
