"""Parts of transformers in PyTorch."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from services.learning.layers.sequences.rotary import ANGLE_BASE


class AddedPositions(nn.Module):
    """Trained vectors that are added to each position."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of features and vectors."""
        return x + self.weight[: x.shape[1]]


class Attention(nn.Module):
    """Multi-head attention with four projections."""

    def __init__(
        self,
        query: nn.Module,
        key: nn.Module,
        value: nn.Module,
        output: nn.Module,
        heads: int,
        key_value_heads: int,
        *,
        is_causal: bool = False,
        has_rotary_positions: bool = False,
    ) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = query, key, value, output
        self.heads, self.key_value_heads = heads, key_value_heads
        self.is_causal, self.has_rotary_positions = is_causal, has_rotary_positions

    def forward(self, x: Tensor) -> Tensor:
        """Return the projected weighted means of values."""
        query, key = self._split(self.query(x), self.heads), self._split(self.key(x), self.key_value_heads)
        value = self._split(self.value(x), self.key_value_heads)
        if self.has_rotary_positions:
            query, key = rotate_by_position(query), rotate_by_position(key)
        is_grouped = self.heads != self.key_value_heads
        attended = scaled_dot_product_attention(query, key, value, is_causal=self.is_causal, enable_gqa=is_grouped)
        return self.output(attended.transpose(1, 2).flatten(2))

    @staticmethod
    def _split(features: Tensor, heads: int) -> Tensor:
        """Return (B, T, D) as (B, heads, T, D / heads)."""
        return features.unflatten(2, (heads, -1)).transpose(1, 2)


def rotate_by_position(x: Tensor) -> Tensor:
    """Return vectors (B, heads, T, F) whose pairs are rotated by position, multiplied as complex numbers."""
    frequencies = ANGLE_BASE ** (-torch.arange(0, x.shape[3], 2, dtype=torch.float64) / x.shape[3])
    angles = torch.arange(x.shape[2])[:, None] * frequencies
    pairs = torch.view_as_complex(x.unflatten(3, (-1, 2)).contiguous())
    rotation = torch.polar(torch.ones_like(angles), angles).to(pairs.dtype)
    return torch.view_as_real(pairs * rotation).flatten(3)


class FeedForward(nn.Module):
    """Feed-forward network with GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the network at each position."""
        return self.down(gelu(self.up(x), approximate="tanh"))


class GatedFeedForward(nn.Module):
    """Gated feed-forward network with SiLU."""

    def __init__(self, gate: nn.Module, up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.gate, self.up, self.down = gate, up, down

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the network at each position."""
        return self.down(silu(self.gate(x)) * self.up(x))


class LoraLinear(nn.Module):
    """Frozen linear layer without bias, with a low-rank adapter."""

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        inputs, outputs = weight.shape
        self.register_buffer("weight", weight)
        self.lora_a, self.lora_b = nn.Parameter(torch.empty(inputs, rank)), nn.Parameter(torch.empty(rank, outputs))
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer plus that of the adapter."""
        return x @ self.weight + self.scale * (x @ self.lora_a @ self.lora_b)


def build_attention(width: int, heads: int, *, is_causal: bool) -> nn.Module:
    """Return attention with linear projections."""
    linear = partial(nn.Linear, width, width)
    return Attention(linear(), linear(), linear(), linear(), heads, heads, is_causal=is_causal)
