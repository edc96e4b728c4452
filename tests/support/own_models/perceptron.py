"""A user's model: one hidden layer, for classes (integer targets) and for values."""

from typing import Any

from activation import tanh, tanh_derivative

from services.schema.arrays import array_namespace


class Perceptron:
    """One hidden layer; the loss is the cross entropy, or half of the squared error."""

    def __init__(self, inputs: tuple[int, ...], outputs: int, hidden: int = 6) -> None:
        self.inputs, self.hidden, self.outputs_ = 1, hidden, outputs
        for size in inputs:
            self.inputs *= size

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "hidden.weight": (self.inputs, self.hidden),
            "hidden.bias": (self.hidden,),
            "output.weight": (self.hidden, self.outputs_),
            "output.bias": (self.outputs_,),
        }

    def init_parameters(self, rng: Any) -> dict[str, Any]:
        arrays = {name: rng.standard_normal(shape) / shape[0] ** 0.5 for name, shape in self.parameter_shapes().items()}
        return {name: array * (array.ndim == 2) for name, array in arrays.items()}  # biases are zero

    def loss_and_gradients(self, params: dict[str, Any], x: Any, y: Any, rng: Any) -> tuple[float, dict[str, Any]]:
        xp, samples = array_namespace(x), x.reshape(len(x), -1)
        hidden, scores = self._forward(params, samples)
        if y.ndim == 1:
            rows = xp.arange(len(y))
            scores = scores - scores.max(axis=1, keepdims=True)
            errors = xp.exp(scores)
            sums = errors.sum(axis=1, keepdims=True)
            loss = (xp.log(sums[:, 0]) - scores[rows, y]).mean()
            errors = errors / sums
            errors[rows, y] -= 1
        else:
            errors = scores - y
            loss = 0.5 * (errors * errors).sum(axis=1).mean()
        errors = errors / len(y)
        hidden_errors = (errors @ params["output.weight"].T) * tanh_derivative(hidden)
        return loss, {
            "hidden.weight": samples.T @ hidden_errors,
            "hidden.bias": hidden_errors.sum(axis=0),
            "output.weight": hidden.T @ errors,
            "output.bias": errors.sum(axis=0),
        }

    def outputs(self, params: dict[str, Any], x: Any) -> Any:
        return self._forward(params, x.reshape(len(x), -1))[1]

    def forward_flops(self) -> float:
        return 2.0 * self.hidden * (self.inputs + self.outputs_)

    def _forward(self, params: dict[str, Any], samples: Any) -> tuple[Any, Any]:
        hidden = tanh(samples @ params["hidden.weight"] + params["hidden.bias"])
        return hidden, hidden @ params["output.weight"] + params["output.bias"]


class NoisyPerceptron(Perceptron):
    """A perceptron with dropout of its inputs."""

    def loss_and_gradients(self, params: dict[str, Any], x: Any, y: Any, rng: Any) -> tuple[float, dict[str, Any]]:
        mask = (rng.random(x.shape) < 0.5).astype(x.dtype)
        return super().loss_and_gradients(params, x * mask, y, rng)


class Contrastive(Perceptron):
    """A perceptron whose mean loss compares each sample with all others, so that it grows with the batch."""

    def loss_and_gradients(self, params: dict[str, Any], x: Any, y: Any, rng: Any) -> tuple[float, dict[str, Any]]:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        growth = float(array_namespace(x).log(len(x)))
        return growth * loss, {name: growth * gradient for name, gradient in gradients.items()}
