"""Compression of large arrays only: which entries are compressed, exactness of the others, ranges, momentum, trials."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_trial import SimulatedTrial

from services.compressors import Compressor, CompressorSeed, Dgc, ErrorFeedback, Int8, LargeArraysOnly, RandomK, TopK
from services.compressors.wrappers.array_split import split_range
from services.learning.optimisers import Momentum, Sgd
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError
from services.strategies import AllReduce, LocalSgd, ParameterServer, PostLocalSgd, SyncSwitch
from services.strategies.base import Strategy

SHAPES = ((6, 10), (10,), (10, 7), (7,), (2, 3, 2))  # 60, 10, 70, 7 and 12 entries
SIZES = tuple(map(prod, SHAPES))
SMALL = np.repeat([size < 20 for size in SIZES], SIZES)
GRADIENTS = np.random.default_rng(1).standard_normal((20, SMALL.size)).astype("float32")
SGD = {"optimiser": {"kind": "sgd", "rate": 0.05}, "precision": "fp32"}


def of_large_arrays(inner: Compressor, min_entries: int = 20) -> LargeArraysOnly:
    return LargeArraysOnly(inner=inner, min_entries=min_entries).fit_to_model(SHAPES)


def send_all(compressor: Compressor, gradients: HostArray = GRADIENTS) -> list[HostArray]:
    """Return the decompressed vectors of all gradients."""
    state, sent = compressor.init_state(gradients.shape[1], CompressorSeed()), []
    for gradient in gradients:
        payload, state = compressor.compress(gradient, state)
        sent.append(compressor.decompress(payload))
    return sent


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    cuts=st.tuples(st.integers(0, 250), st.integers(0, 250)),
    min_entries=st.integers(1, 40),
)
def test_every_entry_of_a_range_is_in_a_large_or_in_a_small_array(
    sizes: list[int], cuts: tuple[int, int], min_entries: int
) -> None:
    """An array that a range cuts stays large: what is compressed must not depend on the number of servers."""
    start, stop = (min(cut, sum(sizes)) for cut in sorted(cuts))
    is_large = np.repeat([size >= min_entries for size in sizes], sizes)[start:stop]

    split = split_range(tuple(sizes), start, stop, min_entries)

    for slices, expected in ((split.large, is_large), (split.small, ~is_large)):
        covered = np.zeros(stop - start, bool)
        for part in slices:
            assert not covered[part].any()
            covered[part] = True
        assert np.array_equal(covered, expected)
    assert (split.large_entry_count, split.small_entry_count) == (is_large.sum(), (~is_large).sum())


@pytest.mark.parametrize(
    "inner", [TopK(ratio=0.05), Int8(bucket=16), RandomK(ratio=0.1), ErrorFeedback(inner=TopK(ratio=0.05))], ids=repr
)
def test_small_arrays_have_the_bits_of_the_gradient_and_large_ones_those_of_the_compressor(inner: Compressor) -> None:
    """The compressor gets the entries of large arrays as one vector, as if there were no others."""
    alone = send_all(inner, GRADIENTS[:, ~SMALL])

    for gradient, sent, large in zip(GRADIENTS, send_all(of_large_arrays(inner)), alone, strict=True):
        assert sent[SMALL].tobytes() == gradient[SMALL].tobytes()
        assert sent[~SMALL].tobytes() == large.tobytes()


def test_payload_has_the_bytes_of_both_parts() -> None:
    """29 entries of small arrays in fp32; of the 130 others, 13 with their positions."""
    compressor = of_large_arrays(TopK(ratio=0.1))

    assert compressor.compressed_size_bytes(159, "float32") == 29 * 4 + 13 * (4 + 4)
    assert compressor.compressed_size_bytes(159, "float64") == 29 * 8 + 13 * (8 + 4)


@pytest.mark.parametrize(("start", "stop"), [(0, 53), (53, 106), (106, 159), (60, 70), (0, 60), (132, 159)])
def test_range_of_a_server_has_the_same_small_arrays(start: int, stop: int) -> None:
    """A shard may begin and end within an array, and may have only small or only large arrays."""
    compressor = of_large_arrays(TopK(ratio=1e-9)).fit_to_range(start, stop)
    gradient, small = GRADIENTS[0, start:stop], SMALL[start:stop]

    payload, _ = compressor.compress(gradient, compressor.init_state(gradient.size, CompressorSeed()))

    sent = compressor.decompress(payload)
    assert sent[small].tobytes() == gradient[small].tobytes()
    assert np.count_nonzero(sent[~small]) == min(1, np.count_nonzero(~small))
    assert payload.nbytes == compressor.compressed_size_bytes(gradient.size, "float32")


def test_vector_of_another_length_is_rejected() -> None:
    """The entries of other arrays would be compressed."""
    with pytest.raises(ProtocolError, match="for the entries 0 to 159 of the parameter vector, but a vector has 158"):
        of_large_arrays(TopK()).init_state(158, CompressorSeed())


def test_uncompressed_entries_get_the_momentum_of_dgc() -> None:
    """With all entries sent and without masking, dgc is momentum; small arrays must not be trained without it."""
    sent = send_all(of_large_arrays(Dgc(ratio=1, momentum=0.7, masking=False)))

    plain, momentum = Sgd(rate=0.1), Momentum(rate=0.1, momentum=0.7)
    params = expected = np.ones(SMALL.size, "float32")
    state, expected_state = plain.init_state(params), momentum.init_state(params)
    for gradient, vector in zip(GRADIENTS, sent, strict=True):
        params, state = plain.update_params(params, vector, state)
        expected, expected_state = momentum.update_params(expected, gradient, expected_state)
    assert params.tobytes() == expected.tobytes()


def test_uncompressed_entries_of_dgc_are_finite_again_after_a_value_that_is_not() -> None:
    """Their momentum would otherwise keep it for ever."""
    gradients = GRADIENTS[:3].copy()
    gradients[0, SMALL] = np.nan

    first, *others = send_all(of_large_arrays(Dgc(ratio=0.1)), gradients)

    assert np.isnan(first[SMALL]).all()
    assert np.isfinite(others).all()


@pytest.mark.parametrize(("workers", "limit"), [(None, 0.5), (4, 0.25)])
def test_each_part_is_clipped_to_its_own_norm(workers: int | None, limit: float) -> None:
    """The implementation of the paper clips each array by itself."""
    sent, *_ = send_all(of_large_arrays(Dgc(ratio=1, clip_norm=0.5, workers=workers)))

    assert np.linalg.norm(sent[SMALL]) == pytest.approx(limit)
    assert np.linalg.norm(sent[~SMALL]) == pytest.approx(limit)


STRATEGIES: list[Strategy] = [
    AllReduce(),
    ParameterServer(servers=3),
    LocalSgd(period=2),
    PostLocalSgd(period=2),
    SyncSwitch(servers=2),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: str(strategy.kind))
@pytest.mark.parametrize("inner", [ErrorFeedback(inner=TopK(ratio=0.05)), RandomK(ratio=0.5), Int8()], ids=repr)
def test_every_strategy_sends_the_bytes_of_the_plan(strategy: Strategy, inner: Compressor) -> None:
    """The model has arrays of 48, 12, 24 and 2 entries, of which shards of servers have parts."""
    compress = LargeArraysOnly(inner=inner, min_entries=20)

    trial = SimulatedTrial.of(strategy.model_copy(update={"compress": compress}), 8, 3, 6, **SGD)

    second = trial.plan.second_phase
    for worker in trial.workers:
        (stop,) = trial.events(worker, "node_stop")
        planned = 8 * trial.plan.bytes_per_step[worker]
        if second:
            planned = 4 * trial.plan.bytes_per_step[worker] + 4 * second.bytes_per_step[worker]
            planned += second.model_transfer_bytes.get(worker, 0)
        assert stop["value"]["payload_bytes_sent"] == planned


def test_bytes_of_all_reduce_are_those_of_small_and_of_compressed_arrays() -> None:
    """14 entries of two biases; of the 72 others, 4 with their positions, to each of two other workers."""
    compress = LargeArraysOnly(inner=TopK(ratio=0.05), min_entries=20)

    plan = SimulatedTrial.of(AllReduce(compress=compress), 1, 3, 6, **SGD).plan

    assert plan.bytes_per_step["worker-0"] == 2 * (14 * 4 + 4 * 8)


@pytest.mark.parametrize("strategy", [AllReduce(), ParameterServer(servers=2)], ids=lambda strategy: strategy.kind)
def test_compressing_all_arrays_is_training_with_the_inner_compressor(strategy: Strategy) -> None:
    """With min_entries 1, no array is small."""
    inner = ErrorFeedback(inner=TopK(ratio=0.1))
    trials = [
        SimulatedTrial.of(strategy.model_copy(update={"compress": compress}), 8, 3, 6, **SGD)
        for compress in (inner, LargeArraysOnly(inner=inner, min_entries=1))
    ]

    assert trials[0].params_sha256 == trials[1].params_sha256


def test_a_compressor_that_does_not_know_the_arrays_of_the_model_is_an_error() -> None:
    """It would compress biases, which must stay uncompressed, without a word."""
    compressor = LargeArraysOnly(inner=TopK())

    with pytest.raises(ProtocolError, match="has not been fitted to the arrays of a model"):
        compressor.init_state(86, CompressorSeed())


def test_compressing_no_array_would_be_training_without_compression() -> None:
    """A server of one shard gets the gradient itself if all arrays of its range are small."""
    compressor = of_large_arrays(TopK(), min_entries=71)

    assert [sent.tobytes() for sent in send_all(compressor)] == [gradient.tobytes() for gradient in GRADIENTS]
