"""Parts that the transformers with dense projections, layer normalisation and GELU share."""

from collections.abc import Iterator
from typing import Self

from pydantic import Field, model_validator

from services.learning.layers.activations import Gelu
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.dense import Dense
from services.learning.layers.initialisation import lecun_variance
from services.learning.layers.sequences.attention import MultiHeadAttention
from services.learning.models.network_model import NetworkModel
from services.schema.conflicts import KeyConflict, raise_conflicts

HIDDEN_RATIO = 4  # hidden units of the feed-forward networks per feature


class Transformer(NetworkModel):
    """Base class of transformers, whose sizes are keys."""

    layers: int = Field(default=2, gt=0, description="layers, each with attention and a feed-forward network")
    width: int = Field(default=64, gt=0, description="features of each position")
    heads: int = Field(default=4, gt=0, description="heads of the attention; divides the width")

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        raise_conflicts(self._find_wrong_heads())
        return self

    def _find_wrong_heads(self) -> Iterator[KeyConflict]:
        if self.width % self.heads:
            divisors = ", ".join(str(heads) for heads in range(1, self.width + 1) if self.width % heads == 0)
            message = f"heads ({self.heads}) must divide the width ({self.width}); choose one of {divisors}"
            yield KeyConflict(("heads",), message)

    def build_attention(self, name: str, *, is_causal: bool) -> Layer:
        """Return multi-head attention with dense projections."""
        query, key, value, output = (
            Dense(f"{name}.{part}", self.width, self.width, lecun_variance)
            for part in ("query", "key", "value", "output")
        )
        return MultiHeadAttention(query, key, value, output, self.heads, self.heads, is_causal)

    def build_feed_forward(self, name: str) -> Layer:
        """Return a feed-forward network with one hidden layer, which is applied at each position."""
        hidden = HIDDEN_RATIO * self.width
        up = Dense(f"{name}.up", self.width, hidden, lecun_variance)
        return Chain((up, Gelu(), Dense(f"{name}.down", hidden, self.width, lecun_variance)))
