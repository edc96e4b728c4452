"""How wrong are outputs, and in which direction would they be less wrong?

B samples, O outputs. Each loss gives its mean over the samples, and the gradient of that mean by the outputs.
"""

from collections.abc import Callable

from services.device import Array, namespace


def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Array]:
    """-mean log softmax(scores)[label], with scores (B, O), labels (B,) → (), (B, O).

    The row's largest score is taken off first: the softmax stays the same, and exp cannot overflow.
    """
    xp, samples = namespace(scores), max(1, len(labels))
    chosen = xp.arange(len(labels)), labels
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
    grad = xp.exp(log_softmax)
    grad[chosen] -= 1
    return -log_softmax[chosen].sum() / samples, grad / samples


def mse(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Mean over samples and outputs of (output - target)², both (B, O) → (), (B, O)."""
    error, entries = outputs - targets, max(1, outputs.size)
    return (error**2).sum() / entries, error * (2 / entries)


LOSSES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {"cross_entropy": cross_entropy, "mse": mse}
