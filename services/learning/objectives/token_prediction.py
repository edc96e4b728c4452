"""Prediction of tokens: cross entropy, perplexity and accuracy."""

from typing import ClassVar

from services.learning.objectives.base import Objective, QualityMetric
from services.learning.tokens import IGNORED_TARGET, check_tokens
from services.schema.arrays import Array, Vector, array_namespace


class TokenPrediction(Objective):
    """Prediction of one token per position: outputs are scores before the softmax, targets are tokens.

    Shapes: scores (B, T, O), targets (B, T), for a vocabulary of O tokens. The loss of a sample is the mean over its
    positions, without those whose target is `IGNORED_TARGET`. The loss of a batch is the mean over its samples. If all
    samples have the same number of positions that count, it is the mean over all these positions, as in PyTorch.
    """

    metrics: ClassVar = {"perplexity": QualityMetric("at_most", 1.0), "accuracy": QualityMetric("at_least", 1.0)}

    def loss_and_output_grad(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Return the mean cross entropy of the targets, and its gradient.

        Raises:
            ValueError: a target is neither a token of the vocabulary nor `IGNORED_TARGET`.
        """
        xp, vocabulary = array_namespace(outputs), outputs.shape[-1]
        check_tokens(targets, vocabulary, smallest=IGNORED_TARGET)
        scores, weights = outputs.reshape(-1, vocabulary), _position_weights(targets, outputs)
        target_entries = xp.arange(len(scores)), targets.reshape(-1)  # ignored targets have the weight 0
        shifted = scores - scores.max(axis=1, keepdims=True)
        grad = xp.exp(shifted)
        sums = grad.sum(axis=1, keepdims=True)
        losses = xp.log(sums[:, 0]) - shifted[target_entries]
        grad /= sums
        grad[target_entries] -= 1
        grad *= weights[:, None]
        return losses @ weights, grad.reshape(outputs.shape)

    def measure_quality(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return perplexity and accuracy, by metric name.

        The perplexity is exp(loss). The accuracy is the mean over samples of the share of positions at which the target
        has the largest score.
        """
        loss, _ = self.loss_and_output_grad(outputs, targets)
        is_right = (outputs.argmax(axis=-1) == targets).reshape(-1)
        accuracy = (is_right * _position_weights(targets, outputs)).sum()
        return {"perplexity": float(array_namespace(outputs).exp(loss)), "accuracy": float(accuracy)}


def _position_weights(targets: Array, outputs: Array) -> Vector:
    """Return the weight of each position in the mean over samples, as one vector of the type of the outputs."""
    is_counted = (targets != IGNORED_TARGET).astype(outputs.dtype)
    counts = is_counted.sum(axis=1, keepdims=True)
    return (is_counted / (counts.clip(1) * len(targets))).reshape(-1)
