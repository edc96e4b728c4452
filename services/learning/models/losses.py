"""Loss functions: the mean loss over the samples, and its gradient with respect to the outputs.

Shapes: B samples, at least one; O outputs.
"""

from collections.abc import Callable

from services.schema.arrays import Array, array_namespace


def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Return -mean log softmax(scores)[label], and its gradient.

    Scores (B, O), labels (B,) → (), (B, O). The largest score of each row is subtracted first: the softmax stays the
    same, and exp cannot overflow.
    """
    xp, samples = array_namespace(scores), len(labels)
    label_entries = xp.arange(samples), labels
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
    grad = xp.exp(log_softmax)
    grad[label_entries] -= 1
    return -log_softmax[label_entries].sum() / samples, grad / samples


def mse(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Return the mean of (output - target)² over B samples and O outputs, and its gradient of shape (B, O)."""
    error = outputs - targets
    return (error**2).mean(), error * (2 / error.size)


LOSSES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {"cross_entropy": cross_entropy, "mse": mse}
