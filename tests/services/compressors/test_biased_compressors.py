"""Decompressed values of 1-bit SGD, signs, and random-k, whose payloads can be added."""

import numpy as np

from services.compressors import CompressedPayload, CompressorSeed, OneBit, RandomK, Sign


def test_one_bit_sends_the_means_of_negative_and_of_other_entries_of_each_bucket() -> None:
    """Zero counts as not negative on all nodes."""
    x = np.array([-1, -3, 2, 4, 0, 2, 2, 2, 5, -7], "float32")

    payload, _ = OneBit(bucket=8).compress(x, None)

    assert OneBit(bucket=8).decompress(payload).tolist() == [-2, -2, 2, 2, 2, 2, 2, 2, 5, -7]


def test_signs_have_the_mean_magnitude_of_the_vector_or_one() -> None:
    """EF-signSGD: ‖v‖₁/n times the sign."""
    x = np.array([-1, -3, 2, 0], "float32")

    decompressed = [sign.decompress(sign.compress(x, None)[0]).tolist() for sign in (Sign(), Sign(scale="none"))]

    assert decompressed == [[-1.5, -1.5, 1.5, 1.5], [-1, -1, 1, 1]]


def test_added_payloads_of_random_k_decompress_to_the_sum() -> None:
    """Workers share the positions, so a collective may add the values as they are."""
    compressor, vectors = RandomK(ratio=0.2), np.random.default_rng(1).standard_normal((3, 50)).astype("float32")
    states = [compressor.init_state(50, CompressorSeed(7, sender)) for sender in range(3)]
    for _ in range(3):
        results = [compressor.compress(vector, state) for vector, state in zip(vectors, states, strict=True)]
        payloads, states = [payload for payload, _ in results], [state for _, state in results]
        (seed, _), values = payloads[0].arrays, sum(payload.arrays[1] for payload in payloads)
        total = compressor.decompress(CompressedPayload((seed, values), 50))

        assert len({int(payload.arrays[0][0]) for payload in payloads}) == 1
        np.testing.assert_allclose(total, sum(compressor.decompress(payload) for payload in payloads), rtol=1e-6)
        assert np.count_nonzero(total) == 10
