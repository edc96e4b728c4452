"""Small GPT in PyTorch."""

from torch import Tensor, nn

from benchmarks.compute.torch_transformer import AddedPositions, FeedForward, build_attention
from services.learning.datasets import LearningTask
from services.learning.models import GptMini
from services.learning.models.transformer import HIDDEN_RATIO


class GptLayer(nn.Module):
    """Layer of the decoder, with normalisation before attention and feed-forward network."""

    def __init__(self, model: GptMini) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(model.width)
        self.attention = build_attention(model.width, model.heads, is_causal=True)
        self.feed_forward_norm = nn.LayerNorm(model.width)
        self.feed_forward = FeedForward(model.width, HIDDEN_RATIO * model.width)
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


def build_module(model: GptMini, learning_task: LearningTask) -> nn.Module:
    """Return the module: embeddings, layers, normalisation and output layer."""
    (length,), vocabulary = learning_task.inputs, learning_task.outputs
    embeddings = nn.Embedding(vocabulary, model.width), AddedPositions(length, model.width), nn.Dropout(model.dropout)
    layers = (GptLayer(model) for _ in range(model.layers))
    output = nn.Linear(model.width, vocabulary, bias=False)
    return nn.Sequential(*embeddings, *layers, nn.LayerNorm(model.width), output)
