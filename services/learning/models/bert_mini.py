"""Small encoder that predicts masked tokens, modelled on BERT.

J. Devlin et al., "BERT", NAACL 2019. As there: learned positions, layer normalisation after attention and feed-forward
network, and an output network with one hidden layer. We differ in four points: there are no pairs of sentences, the
output layer has weights of its own, initial weights have the variance 1 / fan in, and there is no dropout.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from services.learning.datasets.base import LearningTask
from services.learning.layers.activations import Gelu
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.dense import Dense
from services.learning.layers.initialisation import lecun_variance
from services.learning.layers.residual import Residual
from services.learning.layers.sequences.embedding import Embedding, LearnedPositions
from services.learning.layers.sequences.normalisation import LayerNorm
from services.learning.models.transformer import Transformer
from services.learning.objectives import LossName
from services.learning.randomness import BatchRandomness
from services.learning.tokens import IGNORED_TARGET, MASK_TOKEN
from services.schema.arrays import Array, array_namespace

TARGET_SHARE = 0.15  # of the positions of a sample: those whose token the model predicts
MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1  # of these: inputs that are the mask token, or a random one


class BertMini(Transformer):
    """Encoder: each position attends to all positions, and the model predicts the tokens of some of them.

    15 % of the positions of each sample are targets, always the same number. Of their inputs, 80 % are the mask token,
    10 % a random token, and 10 % the token itself.
    """

    kind: Literal["bert_mini"] = "bert_mini"
    supported_losses: ClassVar[tuple[LossName, ...]] = ("masked_token",)

    def draw_inputs_and_targets(
        self, learning_task: LearningTask, x: Array, y: Array, randomness: BatchRandomness
    ) -> tuple[Array, Array]:
        xp, generator = array_namespace(x), randomness.create_generator(x)
        priorities, choices = generator.random(x.shape), generator.random(x.shape)
        target_count = max(1, round(TARGET_SHARE * x.shape[1]))
        is_target = priorities <= xp.sort(priorities, axis=1)[:, target_count - 1 : target_count]
        random_tokens = generator.integers(MASK_TOKEN + 1, learning_task.outputs, x.shape)
        replacements = xp.where(choices < MASKED_SHARE, MASK_TOKEN, random_tokens)
        is_replaced = is_target & (choices < MASKED_SHARE + RANDOM_SHARE)
        return xp.where(is_replaced, replacements, x), xp.where(is_target, y, IGNORED_TARGET)

    def build_network(self, learning_task: LearningTask) -> Layer:
        (length,), width, vocabulary = learning_task.inputs, self.width, learning_task.outputs
        embeddings = Embedding("tokens", vocabulary, width), LearnedPositions("positions", length, width)
        hidden = Dense("hidden", width, width, lecun_variance), Gelu(), LayerNorm("hidden_norm", width)
        output = Dense("output", width, vocabulary, lecun_variance)
        return Chain((*embeddings, LayerNorm("embedding_norm", width), *self._layers(), *hidden, output))

    def _layers(self) -> Iterator[Layer]:
        for number in range(1, self.layers + 1):
            attention, feed_forward = f"layer{number}.attention", f"layer{number}.feed_forward"
            yield Residual(self.build_attention(attention, is_causal=False))
            yield LayerNorm(f"{attention}_norm", self.width)
            yield Residual(self.build_feed_forward(feed_forward))
            yield LayerNorm(f"{feed_forward}_norm", self.width)
