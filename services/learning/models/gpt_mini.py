"""Small decoder that predicts the next token, modelled on GPT-2.

A. Radford et al., "Language models are unsupervised multitask learners", OpenAI, 2019. As there: learned positions,
layer normalisation before attention and feed-forward network, GELU in its tanh form. We differ in three points: the
output layer has weights of its own, initial weights have the variance 1 / fan in, and dropout is off by default.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.dense import Dense
from services.learning.layers.dropout import Dropout
from services.learning.layers.initialisation import lecun_variance
from services.learning.layers.residual import Residual
from services.learning.layers.sequences.embedding import Embedding, LearnedPositions
from services.learning.layers.sequences.normalisation import LayerNorm
from services.learning.models.transformer import Transformer
from services.learning.objectives import LossName


class GptMini(Transformer):
    """Decoder: each position attends to itself and to earlier positions, and predicts the next token."""

    kind: Literal["gpt_mini"] = "gpt_mini"
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of the numbers after embeddings and in each layer set to zero"
    )
    supported_losses: ClassVar[tuple[LossName, ...]] = ("next_token",)

    def build_network(self, learning_task: LearningTask) -> Layer:
        (length,), vocabulary = learning_task.inputs, learning_task.outputs
        embeddings = Embedding("tokens", vocabulary, self.width), LearnedPositions("positions", length, self.width)
        output = Dense("output", self.width, vocabulary, lecun_variance, has_bias=False)
        final = LayerNorm("output_norm", self.width), output
        return Chain((*embeddings, Dropout(self.dropout), *self._layers(), *final))

    def _layers(self) -> Iterator[Layer]:
        for number in range(1, self.layers + 1):
            attention, feed_forward = f"layer{number}.attention", f"layer{number}.feed_forward"
            yield self._residual(attention, self.build_attention(attention, is_causal=True))
            yield self._residual(feed_forward, self.build_feed_forward(feed_forward))

    def _residual(self, name: str, layer: Layer) -> Layer:
        return Residual(Chain((LayerNorm(f"{name}_norm", self.width), layer, Dropout(self.dropout))))
