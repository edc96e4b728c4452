"""A file of the user beside the model, which imports it."""

from typing import Any

from services.schema.arrays import array_namespace


def tanh(x: Any) -> Any:
    return array_namespace(x).tanh(x)


def tanh_derivative(y: Any) -> Any:
    return 1 - y * y
