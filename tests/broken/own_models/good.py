"""A correct model, from which the models with one mistake are derived."""

from typing import Any

import numpy as np


class Softmax:
    """Multinomial logistic regression."""

    def __init__(self, inputs: tuple[int, ...], outputs: int, scale: float = 0.01) -> None:
        self.shapes = {"weight": (int(np.prod(inputs)), outputs), "bias": (outputs,)}
        self.scale = scale

    def parameter_shapes(self) -> Any:
        return self.shapes

    def init_parameters(self, rng: Any) -> Any:
        return {name: self.scale * rng.standard_normal(shape) for name, shape in self.shapes.items()}

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        scores, rows = self.outputs(params, x), np.arange(len(y))
        errors = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        loss = -np.log(errors[rows, y]).mean()
        errors[rows, y] -= 1
        errors /= len(y)
        return loss, {"weight": x.reshape(len(x), -1).T @ errors, "bias": errors.sum(axis=0)}

    def outputs(self, params: Any, x: Any) -> Any:
        return x.reshape(len(x), -1) @ params["weight"] + params["bias"]
