"""Properties of layers for sequences that the tests of all layers cannot check."""

from math import erf

import numpy as np
import pytest

from services.learning.layers.activations import Gelu, Silu
from services.learning.layers.base import Layer, PassContext
from services.learning.layers.dense import Dense
from services.learning.layers.sequences.adapters import LoraDense
from services.learning.layers.sequences.attention import MultiHeadAttention, attend
from services.learning.layers.sequences.embedding import Embedding
from services.learning.layers.sequences.normalisation import LayerNorm, RmsNorm
from services.learning.layers.sequences.rotary import rotate_by_position
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray


def draw(*shape: int, seed: int = 0) -> HostArray:
    """Return standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def output(layer: Layer, x: HostArray, **arrays: HostArray) -> HostArray:
    """Return the output of a layer whose arrays are given, or initial ones."""
    return layer.forward(layer.init_arrays(np.random.default_rng(1)) | arrays, x, PassContext())[0]


def self_attention(**options: bool) -> MultiHeadAttention:
    """Return attention with two heads on eight features."""
    query, key, value, projection = (Dense(name, 8, 8) for name in ("query", "key", "value", "output"))
    return MultiHeadAttention(query, key, value, projection, heads=2, key_value_heads=2, **options)


def test_causal_attention_does_not_see_later_positions() -> None:
    """Otherwise a model that predicts the next token could read it."""
    x = draw(1, 5, 8)
    changed = x.copy()
    changed[0, 3] += 1

    before, after = (output(self_attention(is_causal=True), inputs) for inputs in (x, changed))

    np.testing.assert_array_equal(before[0, :3], after[0, :3])
    assert (before[0, 3:] != after[0, 3:]).all()


def test_full_attention_has_no_order_of_positions() -> None:
    """A permutation of the positions permutes the results: only position vectors or rotation give an order."""
    x, order = draw(1, 5, 8), [3, 0, 4, 1, 2]

    np.testing.assert_allclose(output(self_attention(), x[:, order]), output(self_attention(), x)[:, order])
    rotated = self_attention(has_rotary_positions=True)
    assert abs(output(rotated, x[:, order]) - output(rotated, x)[:, order]).max() > 0.01


def test_grouped_queries_equal_attention_with_repeated_keys_and_values() -> None:
    """Heads 0 and 1 share the first key, heads 2 and 3 the second, as in other implementations."""
    query, key, value = draw(2, 5, 4, 3), draw(2, 5, 2, 3, seed=1), draw(2, 5, 2, 3, seed=2)

    grouped, _ = attend(query, key, value, is_causal=True)
    repeated, _ = attend(query, key.repeat(2, axis=2), value.repeat(2, axis=2), is_causal=True)

    np.testing.assert_allclose(grouped, repeated)


def test_attention_is_a_mean_of_values_even_with_very_large_scores() -> None:
    """exp(1000) is infinite: without subtracting the largest score, the weights would be NaN."""
    query = np.full((1, 3, 1, 4), 1e3)
    value = draw(1, 3, 1, 4)

    result, _ = attend(query, query, value, is_causal=False)

    np.testing.assert_allclose(result[0, :, 0], np.broadcast_to(value[0, :, 0].mean(axis=0), (3, 4)))


@pytest.mark.parametrize("shift", [1, 3])
def test_products_of_rotated_vectors_depend_on_their_distance_only(shift: int) -> None:
    """The same pair of words has the same score anywhere in a sequence."""
    query, key = np.broadcast_to(draw(2, 1, 1, 8)[:, :, None], (2, 1, 9, 1, 8)).copy()
    query, key = rotate_by_position(query)[0, :, 0], rotate_by_position(key)[0, :, 0]

    products = query @ key.T

    np.testing.assert_allclose(products[shift:, shift:], products[:-shift, :-shift])
    assert np.ptp(products) > 0.1


def test_rotation_keeps_lengths_and_can_be_reversed() -> None:
    """The backward pass of a rotation is the rotation back."""
    x = draw(2, 5, 3, 4)
    rotated = rotate_by_position(x)

    np.testing.assert_allclose(np.linalg.norm(rotated, axis=-1), np.linalg.norm(x, axis=-1))
    np.testing.assert_allclose(rotate_by_position(rotated, direction=-1), x)


def test_layer_normalisation_gives_mean_zero_and_variance_one() -> None:
    """At every position, whatever the scale of its features."""
    y = output(LayerNorm("norm", 64), 100 * draw(2, 3, 64) + 7)

    np.testing.assert_allclose(y.mean(axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(axis=-1), 1, rtol=1e-6)


def test_root_mean_square_normalisation_gives_mean_square_one_and_keeps_the_mean() -> None:
    """Unlike layer normalisation, it does not subtract the mean."""
    y = output(RmsNorm("norm", 64), 100 * draw(2, 3, 64) + 70)

    np.testing.assert_allclose((y**2).mean(axis=-1), 1, rtol=1e-6)
    assert (y.mean(axis=-1) > 0.3).all()


def test_an_adapter_changes_nothing_at_first() -> None:
    """Its second factor is zero, so fine-tuning starts from the frozen model."""
    base = Dense("dense", 5, 4, is_frozen=True)
    frozen = {"dense.weight": draw(5, 4), "dense.bias": draw(4)}

    np.testing.assert_array_equal(
        output(LoraDense(base, rank=2, alpha=8), draw(3, 5), **frozen), output(base, draw(3, 5), **frozen)
    )


def test_an_adapter_adds_the_scaled_product_of_its_factors_to_the_weight() -> None:
    """After training, it can be merged into the weight: alpha / rank · a·b."""
    weight, a, b = draw(5, 4), draw(5, 2, seed=1), draw(2, 4, seed=2)
    base = Dense("dense", 5, 4, has_bias=False, is_frozen=True)
    factors = {"dense.weight": weight, "dense.lora_a": a, "dense.lora_b": b}

    y = output(LoraDense(base, rank=2, alpha=8), draw(3, 5), **factors)

    np.testing.assert_allclose(y, draw(3, 5) @ (weight + 4 * a @ b))


def test_gelu_is_close_to_its_exact_form() -> None:
    """The tanh form of GPT-2 differs from x·Φ(x) by less than 0.0005."""
    x = np.linspace(-6, 6, 100)
    y, _ = Gelu().forward_with_grad_function(x, PassContext())

    np.testing.assert_allclose(y, [value * (1 + erf(value / 2**0.5)) / 2 for value in x], atol=5e-4)


@pytest.mark.parametrize("layer", [Gelu(), Silu()], ids=repr)
def test_smooth_rectifiers_do_not_overflow(layer: Gelu | Silu) -> None:
    """exp(1000) is infinite; such inputs occur shortly before a training diverges."""
    x = np.array([-1000.0, 1000.0])
    y, compute_input_grad = layer.forward_with_grad_function(x, PassContext())

    np.testing.assert_allclose(y, [0, 1000])
    np.testing.assert_allclose(compute_input_grad(np.ones(2)), [0, 1])


@pytest.mark.parametrize("token", [-1, 6])
def test_tokens_outside_the_vocabulary_are_rejected(token: int, device: ComputeDevice) -> None:
    """NumPy would take the last token for -1, and CuPy an arbitrary number of its memory for 6."""
    x = device.to_device(np.array([[0, token]]))

    with pytest.raises(ValueError, match=f"token {token} is not in the vocabulary, whose tokens are 0 to 5"):
        Embedding("tokens", 6, 4).forward({"tokens.weight": device.to_device(np.zeros((6, 4)))}, x, PassContext())


def test_equal_tokens_add_up_in_the_gradient_of_an_embedding() -> None:
    """A token that occurs three times gets three gradients."""
    weight, x = np.zeros((4, 2)), np.array([[1, 3, 1], [1, 0, 0]])
    _, backward = Embedding("tokens", 4, 2).forward({"tokens.weight": weight}, x, PassContext())

    ((_, gradient),) = backward(np.ones((2, 3, 2)), needs_input_grad=False)

    assert gradient.tolist() == [[2, 2], [3, 3], [0, 0], [1, 1]]
