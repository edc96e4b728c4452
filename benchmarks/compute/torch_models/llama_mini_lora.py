"""Adapters of the small LLaMA in PyTorch."""

import torch
from torch import Tensor, nn

from benchmarks.compute.torch_transformer import Attention, GatedFeedForward, LoraLinear
from services.learning.datasets import LearningTask
from services.learning.layers.sequences.normalisation import EPSILON
from services.learning.models import LlamaMiniLora
from services.learning.models.llama_mini import HEADS, KEY_VALUE_HEADS, LAYERS, WIDTH, read_base_arrays


class FrozenLinear(nn.Module):
    """Linear layer without bias, whose weight is not trained."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        return x @ self.weight


class LlamaLayer(nn.Module):
    """Layer of the decoder, with normalisation before attention and feed-forward network."""

    def __init__(self, model: LlamaMiniLora, number: int) -> None:
        super().__init__()
        query, key, value, output = (
            build_projection(model, f"layer{number}.attention.{name}") for name in ("query", "key", "value", "output")
        )
        self.attention_norm = build_frozen_norm(f"layer{number}.attention_norm")
        self.attention = Attention(
            *(query, key, value, output, HEADS, KEY_VALUE_HEADS), is_causal=True, has_rotary_positions=True
        )
        gate, up, down = (
            build_projection(model, f"layer{number}.feed_forward.{name}") for name in ("gate", "up", "down")
        )
        self.feed_forward_norm = build_frozen_norm(f"layer{number}.feed_forward_norm")
        self.feed_forward = GatedFeedForward(gate, up, down)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def build_module(model: LlamaMiniLora, learning_task: LearningTask) -> nn.Module:  # noqa: ARG001 - the base knows its size
    """Return the module; only the adapters are parameters that are trained."""
    embedding = nn.Embedding.from_pretrained(stored_tensor("tokens.weight"))
    return nn.Sequential(
        embedding,
        *(LlamaLayer(model, number) for number in range(1, LAYERS + 1)),
        *(build_frozen_norm("output_norm"), FrozenLinear(stored_tensor("output.weight"))),
    )


def build_projection(model: LlamaMiniLora, name: str) -> nn.Module:
    """Return a frozen projection, with an adapter if it is one of the targets."""
    weight = stored_tensor(f"{name}.weight")
    has_adapter = name.rpartition(".")[2] in model.targets
    return LoraLinear(weight, model.rank, model.alpha) if has_adapter else FrozenLinear(weight)


def build_frozen_norm(name: str) -> nn.Module:
    """Return a normalisation whose weight is not trained."""
    norm = nn.RMSNorm(WIDTH, eps=EPSILON)
    norm.weight = nn.Parameter(stored_tensor(f"{name}.weight"), requires_grad=False)
    return norm


def stored_tensor(name: str) -> Tensor:
    """Return a stored array of the base."""
    return torch.tensor(read_base_arrays()[name])
