"""Small decoder, modelled on LLaMA, and its stored weights: the base of `llama_mini_lora`.

H. Touvron et al., "LLaMA: Open and efficient foundation language models", 2023. As there: root mean square
normalisation before attention and feed-forward network, rotary positions, gated feed-forward networks, no biases, an
output layer with weights of its own. Queries are grouped, as in later versions. `README.md` states how the weights were
trained.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.dense import Dense
from services.learning.layers.initialisation import lecun_variance
from services.learning.layers.residual import Residual
from services.learning.layers.sequences.attention import MultiHeadAttention
from services.learning.layers.sequences.embedding import Embedding
from services.learning.layers.sequences.gated import SwiGlu
from services.learning.layers.sequences.normalisation import RmsNorm
from services.schema.arrays import HostArray

LAYERS, WIDTH, HEADS, KEY_VALUE_HEADS, HIDDEN = 2, 64, 4, 2, 176
BASE_FILE = Path(__file__).with_name("llama_mini.npz")

BuildProjection: TypeAlias = Callable[[str, int, int], Layer]  # name, inputs, outputs -> layer


def build_llama(vocabulary: int, build_projection: BuildProjection, *, is_frozen: bool) -> Layer:
    """Return the decoder, with projections as `build_projection` returns them.

    The names of projections end with query, key, value, output, gate, up or down. Embedding, normalisation and output
    layer are trained, unless they are frozen.
    """
    embedding = Embedding("tokens", vocabulary, WIDTH, is_frozen)
    output = Dense("output", WIDTH, vocabulary, lecun_variance, has_bias=False, is_frozen=is_frozen)
    layers = _build_layers(build_projection, is_frozen=is_frozen)
    return Chain((embedding, *layers, RmsNorm("output_norm", WIDTH, is_frozen), output))


def _build_layers(build_projection: BuildProjection, *, is_frozen: bool) -> Iterator[Layer]:
    for number in range(1, LAYERS + 1):
        attention, feed_forward = f"layer{number}.attention", f"layer{number}.feed_forward"
        attention_norm, feed_forward_norm = (
            RmsNorm(f"{name}_norm", WIDTH, is_frozen) for name in (attention, feed_forward)
        )
        yield Residual(Chain((attention_norm, _build_attention(attention, build_projection))))
        yield Residual(Chain((feed_forward_norm, _build_feed_forward(feed_forward, build_projection))))


def _build_attention(name: str, build_projection: BuildProjection) -> Layer:
    key_width = WIDTH // HEADS * KEY_VALUE_HEADS
    return MultiHeadAttention(
        build_projection(f"{name}.query", WIDTH, WIDTH),
        build_projection(f"{name}.key", WIDTH, key_width),
        build_projection(f"{name}.value", WIDTH, key_width),
        build_projection(f"{name}.output", WIDTH, WIDTH),
        HEADS,
        KEY_VALUE_HEADS,
        is_causal=True,
        has_rotary_positions=True,
    )


def _build_feed_forward(name: str, build_projection: BuildProjection) -> Layer:
    return SwiGlu(
        build_projection(f"{name}.gate", WIDTH, HIDDEN),
        build_projection(f"{name}.up", WIDTH, HIDDEN),
        build_projection(f"{name}.down", HIDDEN, WIDTH),
    )


@cache
def read_base_arrays() -> dict[str, HostArray]:
    """Return the stored arrays by name; the file has them in fp16."""
    with np.load(BASE_FILE, allow_pickle=False) as file:
        return {name: array.astype(np.float32) for name, array in file.items()}
