"""A model of a user, written with NumPy: two layers with a residual connection, for images with labels.

docs/own-code.md describes the methods.
"""

import numpy as np


class TwoLayers:
    """Two dense layers; the second sees the pixels as well as the outputs of the first."""

    def __init__(self, inputs, outputs, hidden=32):
        self.pixels, self.hidden, self.classes = int(np.prod(inputs)), hidden, outputs

    def parameter_shapes(self):
        return {
            "first.weight": (self.pixels, self.hidden),
            "first.bias": (self.hidden,),
            "second.weight": (self.hidden + self.pixels, self.classes),
            "second.bias": (self.classes,),
        }

    def init_parameters(self, rng):
        shapes = self.parameter_shapes()
        return {name: rng.standard_normal(shape) / len(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}

    def loss_and_gradients(self, params, x, y, rng):
        features, scores = self.forward(params, x)
        rows = np.arange(len(y))
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        loss = -np.log(shares[rows, y]).mean()
        shares[rows, y] -= 1
        errors = shares / len(y)
        hidden_errors = errors @ params["second.weight"][: self.hidden].T * (features[:, : self.hidden] > 0)
        return loss, {
            "first.weight": features[:, self.hidden :].T @ hidden_errors,
            "first.bias": hidden_errors.sum(axis=0),
            "second.weight": features.T @ errors,
            "second.bias": errors.sum(axis=0),
        }

    def outputs(self, params, x):
        return self.forward(params, x)[1]

    def forward(self, params, x):
        pixels = x.reshape(len(x), -1)
        hidden = np.maximum(pixels @ params["first.weight"] + params["first.bias"], 0)
        features = np.concatenate([hidden, pixels], axis=1)
        return features, features @ params["second.weight"] + params["second.bias"]
