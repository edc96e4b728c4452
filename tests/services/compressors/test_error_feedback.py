"""Error feedback: resets of the residual, aggregation, and what it changes in the inner compressor."""

import numpy as np
import pytest

from services.compressors import Compressor, CompressorSeed, ErrorFeedback, Fp16, Int8, OneBit, RandomK, Sign, TopK
from services.schema.arrays import HostArray


def gradient(number: int) -> HostArray:
    vector: HostArray = np.random.default_rng(number).standard_normal(64).astype("float32")
    return vector


@pytest.mark.parametrize(
    ("inner", "reset_count"), [(TopK(ratio=0.1), 1), (Int8(bucket=16), 16), (OneBit(bucket=64), 64), (Fp16(), 1)]
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_residuals_that_are_not_finite_are_set_to_zero_and_counted(
    inner: Compressor, reset_count: int, value: float
) -> None:
    """One NaN would otherwise make every later payload NaN. The count shows how much was lost."""
    compressor = ErrorFeedback(inner=inner)
    state = compressor.init_state(64, CompressorSeed())
    for number in range(5):
        x = gradient(number)
        x[3] = value if number == 2 else x[3]
        payload, state = compressor.compress(x, state)
        assert np.isfinite(compressor.decompress(payload)).all() == (number != 2)

    assert state.reset_count == reset_count
    assert np.isfinite(state.residual).all()


def test_overflow_of_the_inner_compressor_resets_the_residual() -> None:
    """The decompressed value is infinite although the gradient is not."""
    compressor = ErrorFeedback(inner=Fp16())

    payload, state = compressor.compress(np.array([1e30, 1], "float32"), compressor.init_state(2, CompressorSeed()))

    assert compressor.decompress(payload).tolist() == [np.inf, 1]
    assert state.residual.tolist() == [0, 0]
    assert state.reset_count == 1


def test_residual_belongs_to_whole_vectors_unless_payloads_can_be_added() -> None:
    """A collective of partial sums compresses pieces of vectors, which have no residual."""
    inner = {"fp16": Fp16(), "top_k": TopK(), "random_k": RandomK()}

    aggregations = {name: ErrorFeedback(inner=compressor).aggregation for name, compressor in inner.items()}

    assert aggregations == {"fp16": "all_gather", "top_k": "all_gather", "random_k": "payloads"}


def test_random_entries_are_sent_without_the_factor_that_makes_them_unbiased() -> None:
    """With the factor, the residual of a sent entry would be many times the entry."""
    compressor, x = ErrorFeedback(inner=RandomK(ratio=0.1)), gradient(1)

    payload, state = compressor.compress(x, compressor.init_state(64, CompressorSeed()))

    sent = compressor.decompress(payload)
    assert np.count_nonzero(sent) == 6
    assert np.array_equal(sent[sent != 0], x[sent != 0])
    assert np.array_equal(sent + state.residual, x)


@pytest.mark.parametrize(("magnitude", "grows"), [(0.01, False), (0.9, False), (1.5, True)])
def test_residual_of_signs_without_scale_grows_with_gradients_above_one(magnitude: float, grows: bool) -> None:
    """Each vector sends 1 or -1 of an entry. Strategy `auto` does not permit this setting, and names this growth."""
    compressor, x = ErrorFeedback(inner=Sign(scale="none")), np.full(64, magnitude, "float32")
    state, largest = compressor.init_state(64, CompressorSeed()), []
    for _ in range(200):
        _, state = compressor.compress(x, state)
        assert state.residual is not None
        largest.append(abs(state.residual).max())

    assert largest[-1] == pytest.approx(200 * (magnitude - 1)) if grows else max(largest) < 1.001
    assert compressor.sum_quality == "unguarded"


@pytest.mark.parametrize("inner", [TopK(ratio=0.05), OneBit(), RandomK(ratio=0.1)], ids=repr)
def test_every_entry_of_a_constant_gradient_is_sent_in_time(inner: Compressor) -> None:
    """The mean of decompressed vectors approaches the gradient, of which the compressor alone never sends most."""
    x, compressor, steps = gradient(2), ErrorFeedback(inner=inner), 2000
    state, total = compressor.init_state(64, CompressorSeed()), np.zeros(64)
    for _ in range(steps):
        payload, state = compressor.compress(x, state)
        total += compressor.decompress(payload)

    assert np.linalg.norm(total / steps - x) < 0.05 * np.linalg.norm(x)
