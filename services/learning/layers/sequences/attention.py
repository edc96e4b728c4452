"""Multi-head attention: each position takes a weighted mean of the values of all positions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy.typing as npt

from services.learning.layers.base import (
    BackwardPass,
    CompositeLayer,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
    sum_input_grads,
)
from services.learning.layers.sequences.rotary import rotate_by_position
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace


@dataclass(frozen=True)
class MultiHeadAttention(CompositeLayer):
    """Multi-head attention: y = output(attention(query(x), key(x), value(x))).

    The four projections are layers, usually dense ones. A query has `heads` vectors per position. A key and a value
    have `key_value_heads` vectors per position, each of which belongs to several consecutive heads of the query
    (grouped queries). Shapes: x and y (B, T, D). A. Vaswani et al., "Attention is all you need", NIPS 2017; J. Ainslie
    et al., "GQA", EMNLP 2023.
    """

    query: Layer
    key: Layer
    value: Layer
    output: Layer
    heads: int
    key_value_heads: int  # divides `heads`
    is_causal: bool = False  # whether a position attends only to itself and to earlier positions
    has_rotary_positions: bool = False  # whether queries and keys are rotated by their position

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.query, self.key, self.value, self.output

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        query, query_backward = self.query.forward(arrays, x, context)
        key, key_backward = self.key.forward(arrays, x, context)
        value, value_backward = self.value.forward(arrays, x, context)
        attended, compute_input_grads = attend(
            self._rotate(split_heads(query, self.heads)),
            self._rotate(split_heads(key, self.key_value_heads)),
            split_heads(value, self.key_value_heads),
            is_causal=self.is_causal,
        )
        y, output_backward = self.output.forward(arrays, attended.reshape(query.shape), context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            attended_grad = yield from output_backward(output_grad, needs_input_grad=True)
            grads = compute_input_grads(split_heads(attended_grad, self.heads))
            query_grad, key_grad = self._rotate(grads.query, direction=-1), self._rotate(grads.key, direction=-1)
            from_value = yield from value_backward(grads.value.reshape(value.shape), needs_input_grad=needs_input_grad)
            from_key = yield from key_backward(key_grad.reshape(key.shape), needs_input_grad=needs_input_grad)
            from_query = yield from query_backward(query_grad.reshape(query.shape), needs_input_grad=needs_input_grad)
            return sum_input_grads(from_query, from_key, from_value)

        return y, backward

    def _rotate(self, vectors: Array, direction: int = 1) -> Array:
        return rotate_by_position(vectors, direction) if self.has_rotary_positions else vectors

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        """Return output shape and operations; those of scores and weighted means count at an array of the value."""
        query, key, value = (layer.measure_cost(input_shape) for layer in (self.query, self.key, self.value))
        output = self.output.measure_cost(query.output_shape)
        flops = query.flops_by_array | key.flops_by_array | value.flops_by_array | output.flops_by_array
        length, features = query.output_shape
        flops[next(iter(value.flops_by_array))] += 2 * 2.0 * length * length * features
        return LayerCost(output.output_shape, flops)


class AttentionGrads(NamedTuple):
    """Gradients of the inputs of an attention."""

    query: Array
    key: Array
    value: Array


def attend(
    query: Array, key: Array, value: Array, *, is_causal: bool
) -> tuple[Array, Callable[[Array], AttentionGrads]]:
    """Return softmax(query·keyᵀ/√F)·value of each head, and the function that computes the gradients of the inputs.

    Shapes: query and result (B, T, heads, F), key and value (B, T, key_value_heads, F). The function takes the gradient
    of the result. All heads of a query that belong to one key are treated as further positions. The keys are the first
    axis of the scores: then the maximum and the sum over keys are element-wise operations on long rows.
    """
    xp, scale, groups = array_namespace(query), query.shape[-1] ** -0.5, key.shape[2]
    queries = group_queries(query * scale, groups)
    keys, values = key.transpose(0, 2, 1, 3), value.transpose(0, 2, 1, 3)
    weights = compute_key_query_products(keys, queries)
    if is_causal:
        mask_later_keys(weights, query.shape[1])
    apply_softmax(weights)
    results = weights.transpose(1, 2, 3, 0) @ values

    def compute_input_grads(result_grad: Array) -> AttentionGrads:
        result_grads = group_queries(result_grad, groups)
        value_grads = weights.transpose(1, 2, 0, 3) @ result_grads
        score_grads = compute_key_query_products(values, result_grads)
        score_grads -= xp.einsum("bgqf,bgqf->bgq", results, result_grads)
        score_grads *= weights
        query_grads = score_grads.transpose(1, 2, 3, 0) @ keys
        query_grads *= scale
        key_grads = score_grads.transpose(1, 2, 0, 3) @ queries
        key_and_value_grads = key_grads.transpose(0, 2, 1, 3), value_grads.transpose(0, 2, 1, 3)
        return AttentionGrads(ungroup_queries(query_grads, query.shape), *key_and_value_grads)

    return ungroup_queries(results, query.shape), compute_input_grads


def split_heads(features: Array, heads: int) -> Array:
    """Return the features of each position as one vector per head: (B, T, D) → (B, T, heads, D / heads)."""
    batch, length, count = features.shape
    return features.reshape(batch, length, heads, count // heads)


def group_queries(vectors: Array, groups: int) -> Array:
    """Return the vectors of the heads of each group one after the other.

    The shapes are (B, T, heads, F) → (B, groups, heads / groups · T, F).
    """
    batch, length, heads, features = vectors.shape
    by_group = vectors.reshape(batch, length, groups, heads // groups, features).transpose(0, 2, 3, 1, 4)
    return by_group.reshape(batch, groups, heads // groups * length, features)


def ungroup_queries(vectors: Array, shape: Shape) -> Array:
    """Return vectors of the shape (B, T, heads, F): the inverse of `group_queries`."""
    batch, length, heads, features = shape
    groups = vectors.shape[1]
    by_group = vectors.reshape(batch, groups, heads // groups, length, features)
    return by_group.transpose(0, 3, 1, 2, 4).reshape(shape)


def compute_key_query_products(keys: Array, queries: Array) -> Array:
    """Return the scalar products of all keys with all queries of each group.

    The axis of the keys is the first axis of the result. Shapes: keys (B, groups, K, F), queries (B, groups, Q, F),
    result (K, B, groups, Q).
    """
    xp, (batch, groups, key_count, _) = array_namespace(keys), keys.shape
    products = xp.empty((key_count, batch, groups, queries.shape[2]), keys.dtype)
    xp.matmul(keys, queries.swapaxes(2, 3), out=products.transpose(1, 2, 0, 3))
    return products


def mask_later_keys(scores: Array, length: int) -> None:
    """Set the scores of keys after their query to -∞; the shape is (T, B, groups, heads / groups · T)."""
    key_count, batch, groups, query_count = scores.shape
    by_position = scores.reshape(key_count, batch, groups, query_count // length, length)
    by_position += _causal_mask(array_namespace(scores), length, scores.dtype)


def apply_softmax(scores: Array) -> None:
    """Replace scores by their softmax over the first axis."""
    scores -= scores.max(axis=0)
    array_namespace(scores).exp(scores, out=scores)
    scores /= scores.sum(axis=0)


@lru_cache(maxsize=16)  # every step needs the same one
def _causal_mask(xp: Any, length: int, dtype: npt.DTypeLike) -> Array:
    """Return -∞ where a key is after the query, otherwise 0, of shape (T keys, 1, 1, 1, T queries)."""
    positions = xp.arange(length)
    is_later = positions[:, None] > positions
    return xp.where(is_later, -xp.inf, 0).astype(dtype)[:, None, None, None, :]
