"""Compressors and their counterparts in PyTorch, which the benchmark compares, encode the same values."""

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.codecs.cases import CASES
from benchmarks.codecs.torch_codecs import TORCH_CODECS, to_tensor
from services.compressors import CompressorSeed

pytestmark = pytest.mark.torch

NAMES = ["fp16", "bf16", "int8", "top_k 1 %", "one_bit"]


def test_every_counterpart_is_compared() -> None:
    """A counterpart that does less work would make the comparison unfair."""
    assert list(TORCH_CODECS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_decompressed_vectors_are_equal_to_those_of_pytorch(name: str) -> None:
    """`int8` rounds by random numbers, so both may differ by one step."""
    x = np.random.default_rng(1).standard_normal(100 * 1024, dtype="float32")
    compressor, codec = CASES[name].compressor, TORCH_CODECS[name]

    payload, _ = compressor.compress(x, compressor.init_state(x.size, CompressorSeed()))
    theirs = codec.decompress(codec.compress(to_tensor(x))).numpy()

    step = abs(x).max() / 127 if name == "int8" else 0
    np.testing.assert_allclose(compressor.decompress(payload), theirs, rtol=1e-6, atol=1.001 * step)
