"""Checks of a class of the user that computes with NumPy or CuPy: methods, arrays and gradient."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.layout import ParameterLayout, Shape
from services.learning.models.base import Model
from services.learning.models.own.checked_samples import draw_samples
from services.learning.own_code import UserCode, make_error

METHODS = ("parameter_shapes", "init_parameters", "loss_and_gradients", "outputs")
DIFFERENCE = 1e-5  # length of the steps of the finite difference
GRADIENT_TOLERANCE = 1e-3  # relative
GRADIENT_NOISE = 1e-7  # rounding error of the finite difference
SHIFT = 0.01  # of initial parameters: at zero, functions such as relu may have no derivative


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


def check_gradient_along_random_direction(model: Model, code: UserCode, learning_task: LearningTask) -> None:
    """Compare the gradient with central differences of the loss along one random direction, in fp64.

    Raises:
        OwnCodeError: they differ by more than a thousandth.
    """
    rng, samples = np.random.default_rng(0), draw_samples(learning_task, "float64")
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
