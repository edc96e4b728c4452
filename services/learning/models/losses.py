"""How wrong are outputs, and in which direction would they be less wrong?

B samples, at least one; O outputs. Each loss gives its mean over the samples and the gradient of that by the outputs.
"""

from collections.abc import Callable

from services.schema.arrays import Array, namespace


def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Array]:
    """-mean log softmax(scores)[label], with scores (B, O), labels (B,) → (), (B, O).

    The row's largest score is taken off first: the softmax stays the same, and exp cannot overflow.
    """
    xp, samples = namespace(scores), len(labels)
    chosen = xp.arange(samples), labels
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
    grad = xp.exp(log_softmax)
    grad[chosen] -= 1
    return -log_softmax[chosen].sum() / samples, grad / samples


def mse(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Mean over samples and outputs of (output - target)², both (B, O) → (), (B, O)."""
    error = outputs - targets
    return (error**2).mean(), error * (2 / error.size)


LOSSES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {"cross_entropy": cross_entropy, "mse": mse}
