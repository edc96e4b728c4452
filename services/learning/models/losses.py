"""Loss functions, each with its gradient with respect to the outputs.

A loss is the mean over the samples. Shapes: B samples, at least one; O outputs.
"""

from collections.abc import Callable

from services.schema.arrays import Array, array_namespace


def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Return the mean cross entropy of class scores, and its gradient.

    The cross entropy is -mean log softmax(scores)[label]. Scores (B, O), labels (B,) → (), (B, O). The largest score of
    each row is subtracted first: the softmax stays the same, and exp cannot overflow.
    """
    xp, samples = array_namespace(scores), len(labels)
    label_entries = xp.arange(samples), labels
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
    grad = xp.exp(log_softmax)
    grad[label_entries] -= 1
    return -log_softmax[label_entries].sum() / samples, grad / samples


def mse(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Return the mean squared error of outputs, and its gradient.

    The mean of (output - target)² is over B samples and O outputs; the gradient has the shape (B, O).
    """
    error = outputs - targets
    return (error**2).mean(), error * (2 / error.size)


LOSSES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {"cross_entropy": cross_entropy, "mse": mse}
