"""Small BERT in PyTorch."""

from torch import Tensor, nn

from benchmarks.compute.torch_transformer import AddedPositions, FeedForward, build_attention
from services.learning.datasets import LearningTask
from services.learning.models import BertMini
from services.learning.models.transformer import HIDDEN_RATIO


class BertLayer(nn.Module):
    """Layer of the encoder, with normalisation after attention and feed-forward network."""

    def __init__(self, model: BertMini) -> None:
        super().__init__()
        self.attention = build_attention(model.width, model.heads, is_causal=False)
        self.attention_norm = nn.LayerNorm(model.width)
        self.feed_forward = FeedForward(model.width, HIDDEN_RATIO * model.width)
        self.feed_forward_norm = nn.LayerNorm(model.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.feed_forward(x))


def build_module(model: BertMini, learning_task: LearningTask) -> nn.Module:
    """Return the module: embeddings, layers, and an output network with one hidden layer."""
    (length,), vocabulary, width = learning_task.inputs, learning_task.outputs, model.width
    return nn.Sequential(
        *(nn.Embedding(vocabulary, width), AddedPositions(length, width), nn.LayerNorm(width)),
        *(BertLayer(model) for _ in range(model.layers)),
        *(nn.Linear(width, width), nn.GELU(approximate="tanh"), nn.LayerNorm(width), nn.Linear(width, vocabulary)),
    )
