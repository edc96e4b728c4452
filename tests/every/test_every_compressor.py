"""Tests of every compressor: error, mean, payload size, special values, seeds, devices, and whole trials."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import TypeAdapter
from simulated_trial import SimulatedTrial
from stored_states import store_state_before_each_step
from strategy_contexts import context
from user_code import torch_net

from services.checkpoints.other_worker_count import WorkerChange
from services.checkpoints.other_worker_count.compressor_states import change_compressor_states
from services.compressors import (
    AnyCompressor,
    Bf16,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    Dgc,
    ErrorFeedback,
    Fp4,
    Fp16,
    IdentityCompressor,
    Int8,
    LargeArraysOnly,
    OneBit,
    Qsgd,
    RandomK,
    Sign,
    TernGrad,
    TopK,
    VectorCompression,
    applies_momentum,
    bytes_to_vector,
    fit_to_model,
    payload_to_bytes,
)
from services.learning.optimisers import Momentum
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray
from services.strategies import AllReduce, DiLoCo, LocalSgd, ParameterServer

SquaredError: TypeAlias = Callable[[HostArray], float]  # of a vector in fp64


def relative_error(limit: float) -> SquaredError:
    """Return the bound of a relative error; magnitudes below 2⁻¹⁴ have the absolute error of 2⁻¹⁴."""
    return lambda x: float(np.sum((limit * np.maximum(abs(x), 2.0**-14)) ** 2))


def squared_norm(x: HostArray) -> float:
    return float(np.dot(x, x))


def bucket_norms(x: HostArray, bucket: int) -> Iterator[tuple[HostArray, int]]:
    """Yield each bucket of a vector with its length."""
    for start in range(0, x.size, bucket):
        yield x[start : start + bucket], x[start : start + bucket].size


def steps_of_largest(bucket: int, levels: int, share: float) -> SquaredError:
    """Return the bound of errors below `share` steps, for steps of the largest magnitude divided by `levels`."""
    return lambda x: sum(k * (share * abs(part).max() / levels) ** 2 for part, k in bucket_norms(x, bucket))


def steps_of_norm(bucket: int, levels: int) -> SquaredError:
    """Return the bound of errors below one step, for steps of the Euclidean norm divided by `levels`."""
    return lambda x: sum(k * squared_norm(part) / levels**2 for part, k in bucket_norms(x, bucket))


def qsgd_variance(bucket: int, levels: int) -> SquaredError:
    """Return the paper's bound of the mean squared error."""
    return lambda x: sum(
        min(k / levels**2, k**0.5 / levels) * squared_norm(part) for part, k in bucket_norms(x, bucket)
    )


def fp4_error(bucket: int) -> SquaredError:
    """Return the bound of errors of numbers without a fraction, of which the smallest is 2⁻⁶ of the largest."""
    return lambda x: sum(
        float((np.minimum(abs(part), np.maximum(abs(part) / 3, abs(part).max() / 128)) ** 2).sum())
        for part, _ in bucket_norms(x, bucket)
    )


def dropped(share: float) -> SquaredError:
    """Return the share of the squared norm of 20 or more entries that is lost if the others are sent."""
    return lambda x: (1 - max(1, round(share * x.size)) / x.size) * squared_norm(x)


def scaled_up(share: float) -> SquaredError:
    """Return the bound of the error if a share of the entries is sent, multiplied by the inverse of the share."""
    return lambda x: max((x.size / max(1, round(share * x.size)) - 1) ** 2, 1) * squared_norm(x)


@dataclass(frozen=True)
class Example:
    """A compressor with the promises of its docstring."""

    compressor: Compressor
    bytes_of_1000: int  # payload of 1,000 entries in fp32
    squared_error: SquaredError  # largest squared error of one vector
    mean_squared_error: SquaredError | None = None  # bound over the random numbers; None: the compressor is biased
    is_exact: bool = False  # whether the vector is sent unchanged
    shows_non_finite: bool = True  # whether any value that isn't finite is visible after decompression

    def __repr__(self) -> str:
        return repr(self.compressor)


EXAMPLES = [
    Example(IdentityCompressor(), 4000, lambda x: 0.0, is_exact=True),
    Example(Fp16(), 2000, relative_error(2.0**-11)),
    Example(Bf16(), 2000, relative_error(2.0**-8)),
    Example(Fp4(), 504, fp4_error(1024)),
    Example(Fp4(bucket=8), 1000, fp4_error(8)),
    Example(Int8(), 1004, steps_of_largest(1024, 127, 1), steps_of_largest(1024, 127, 1 / 2)),
    Example(Int8(bucket=16), 1252, steps_of_largest(16, 127, 1), steps_of_largest(16, 127, 1 / 2)),
    Example(Int8(rounding="nearest"), 1004, steps_of_largest(1024, 127, 0.5001)),
    Example(Qsgd(), 508, steps_of_norm(512, 7), qsgd_variance(512, 7)),
    Example(Qsgd(levels=3, bucket=64, norm="max"), 439, steps_of_largest(64, 3, 1), steps_of_largest(64, 3, 1 / 2)),
    Example(Qsgd(levels=127, bucket=8), 1500, steps_of_norm(8, 127), qsgd_variance(8, 127)),
    Example(TernGrad(), 254, steps_of_largest(1024, 1, 1)),
    Example(TernGrad(clip=None, bucket=8), 750, steps_of_largest(8, 1, 1), steps_of_largest(8, 1, 1 / 2)),
    Example(OneBit(), 133, squared_norm),
    Example(Sign(), 129, lambda x: squared_norm(x) - abs(x).sum() ** 2 / x.size),
    Example(Sign(scale="none"), 129, lambda x: float(np.sum((abs(x) - 1) ** 2))),
    Example(TopK(ratio=1), 8000, lambda x: 0.0, is_exact=True),
    Example(TopK(ratio=0.1), 800, dropped(0.1)),
    Example(TopK(ratio=0.1, selection="exact"), 800, dropped(0.1)),
    Example(
        RandomK(ratio=0.1),
        408,
        scaled_up(0.1),
        lambda x: (x.size / max(1, round(0.1 * x.size)) - 1) * squared_norm(x),
        shows_non_finite=False,
    ),
    Example(RandomK(ratio=0.1, unbiased=False), 408, squared_norm, shows_non_finite=False),
    Example(RandomK(ratio=1), 4008, lambda x: 0.0, lambda x: 0.0, is_exact=True),
    Example(Dgc(ratio=0.1), 800, dropped(0.1)),
    Example(Dgc(ratio=0.1, masking=False, clip_norm=1e9, workers=4), 800, dropped(0.1)),
    Example(Dgc(ratio=1, momentum=0), 8000, lambda x: 0.0, is_exact=True),
    Example(ErrorFeedback(inner=IdentityCompressor()), 4000, lambda x: 0.0, is_exact=True),
    Example(ErrorFeedback(inner=Fp16()), 2000, relative_error(2.0**-11)),
    Example(ErrorFeedback(inner=Bf16()), 2000, relative_error(2.0**-8)),
    Example(ErrorFeedback(inner=Fp4()), 504, fp4_error(1024)),
    Example(ErrorFeedback(inner=Int8()), 1004, steps_of_largest(1024, 127, 1)),
    Example(ErrorFeedback(inner=Qsgd(levels=15, bucket=128)), 657, steps_of_norm(128, 15)),
    Example(ErrorFeedback(inner=Qsgd(norm="max")), 508, steps_of_largest(512, 7, 1)),
    Example(ErrorFeedback(inner=TernGrad()), 254, steps_of_largest(1024, 1, 1)),
    Example(ErrorFeedback(inner=OneBit()), 133, squared_norm),
    Example(ErrorFeedback(inner=Sign()), 129, squared_norm),
    Example(ErrorFeedback(inner=TopK(ratio=0.1)), 800, dropped(0.1)),
    Example(ErrorFeedback(inner=RandomK(ratio=0.1)), 408, squared_norm, shows_non_finite=False),
    Example(LargeArraysOnly(min_entries=8, inner=TopK(ratio=0.1)), 800, dropped(0.1)),
    Example(
        LargeArraysOnly(min_entries=20, inner=Int8()),
        1004,
        steps_of_largest(1024, 127, 1),
        steps_of_largest(1024, 127, 1 / 2),
    ),
    Example(LargeArraysOnly(min_entries=8, inner=Dgc(ratio=0.1)), 800, dropped(0.1)),
    Example(LargeArraysOnly(min_entries=8, inner=ErrorFeedback(inner=OneBit())), 133, squared_norm),
]
STREAMING = DiLoCo(period=2, fragments=2, overlap_steps=1)

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=repr)
every_compressor = pytest.mark.parametrize("compressor", [example.compressor for example in EXAMPLES], ids=repr)
every_unbiased_compressor = pytest.mark.parametrize("example", [e for e in EXAMPLES if e.mean_squared_error], ids=repr)
every_exact_compressor = pytest.mark.parametrize("example", [e for e in EXAMPLES if e.is_exact], ids=repr)
every_error_feedback = pytest.mark.parametrize(
    "compressor", [e.compressor for e in EXAMPLES if isinstance(e.compressor, ErrorFeedback)], ids=repr
)
vectors = arrays(np.float32, st.integers(1, 50), elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))
LENGTHS = [1, 7, 8, 9, 63, 64, 65, 1000, 1023, 1024, 1025, 3000, 70_000]


def fitted(compressor: Compressor, entry_count: int) -> Compressor:
    """Return the compressor for a model with a single array."""
    return fit_to_model(compressor, ((entry_count,),))


def compress_once(compressor: Compressor, x: Any, seed: CompressorSeed | None = None) -> CompressedPayload:
    """Return the payload of the first vector that a sender compresses."""
    payload, _ = compressor.compress(x, compressor.init_state(x.size, seed or CompressorSeed()))
    return payload


def random_vector(size: int, dtype: str = "float32", number: int = 0) -> HostArray:
    vector: HostArray = np.random.default_rng([size, number]).standard_normal(size).astype(dtype)
    return vector


def test_examples_table_contains_every_compressor() -> None:
    """A compressor that is not in the table is not tested."""
    union, *_ = get_args(AnyCompressor)
    inner = {type(e.compressor.inner) for e in EXAMPLES if isinstance(e.compressor, ErrorFeedback)}

    assert {type(example.compressor) for example in EXAMPLES} == set(get_args(union))
    assert inner == set(get_args(union)) - {Dgc, ErrorFeedback, LargeArraysOnly}


def test_a_compressor_must_implement_five_members() -> None:
    """So CONTRIBUTING.md promises, whose example has no others. All members together are a contract of at most ten."""
    members = [name for cls in (VectorCompression, Compressor) for name in vars(cls) if is_declared_member(cls, name)]

    assert Compressor.__abstractmethods__ == {
        "aggregation",
        "init_state",
        "compress",
        "decompress",
        "payload_dtypes_and_sizes",
    }
    assert len(set(members)) <= 10


def is_declared_member(contract: type, name: str) -> bool:
    """Return whether a name is a public method or property that this class declares, and not pydantic for it."""
    return not name.startswith(("_", "model_")) and isinstance(vars(contract)[name], FunctionType | property)


@every_compressor
def test_compressor_survives_a_json_round_trip(compressor: Compressor) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyCompressor).validate_json(compressor.model_dump_json()) == compressor


@every_example
@given(x=vectors)
def test_decompressed_vector_equals_the_input_within_the_error_bound(example: Example, x: HostArray) -> None:
    """The bound is that of the compressor's docstring. Computation in fp32 may exceed it by rounding errors."""
    compressor = fitted(example.compressor, x.size)

    decompressed = compressor.decompress(compress_once(compressor, x))

    assert decompressed.shape == x.shape
    assert decompressed.dtype == x.dtype
    exact = x.astype("float64")
    allowed = (1 + 1e-5) * example.squared_error(exact) + 1e-12 * squared_norm(exact) + 1e-56
    assert squared_norm(decompressed - exact) <= allowed


@every_compressor
@given(x=vectors)
def test_no_entry_changes_its_sign(compressor: Compressor, x: HostArray) -> None:
    """An update against the gradient of an entry would not be the error that the docstring describes."""
    compressor = fitted(compressor, x.size)

    decompressed = compressor.decompress(compress_once(compressor, x))

    assert (np.sign(decompressed) * np.sign(x) >= 0).all()


@every_compressor
@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_payload_has_the_declared_types_and_lengths(compressor: Compressor, size: int, dtype: str) -> None:
    """Bytes per link are predicted before a run; the receiver splits the bytes of a message by the declared formats."""
    x, compressor = random_vector(size, dtype), fitted(compressor, size)

    payload = compress_once(compressor, x)

    formats = tuple((array.dtype.name, array.size) for array in payload.arrays)
    assert formats == compressor.payload_dtypes_and_sizes(size, dtype)
    assert payload.nbytes == compressor.compressed_size_bytes(size, dtype)
    received = bytes_to_vector(compressor, payload_to_bytes(payload), size, dtype)
    assert received.tobytes() == compressor.decompress(payload).astype(dtype).tobytes()


@every_example
def test_payload_size_is_the_documented_size(example: Example) -> None:
    """Scales and positions count, too."""
    assert compress_once(fitted(example.compressor, 1000), random_vector(1000)).nbytes == example.bytes_of_1000


@every_exact_compressor
@pytest.mark.parametrize("size", LENGTHS)
def test_identity_setting_sends_the_bits_of_the_input(example: Example, size: int) -> None:
    """With these settings, training equals training without a compressor."""
    state = example.compressor.init_state(size, CompressorSeed())
    for number in range(3):
        x = random_vector(size, number=number)
        payload, state = example.compressor.compress(x, state)
        assert example.compressor.decompress(payload).tobytes() == x.tobytes()


@every_unbiased_compressor
@pytest.mark.parametrize("size", [20, 29])
def test_mean_of_decompressed_vectors_is_the_vector_and_their_variance_is_bounded(example: Example, size: int) -> None:
    """Without error feedback, SGD converges only with an unbiased compressor; the variance determines how fast."""
    x, draws, compressor = random_vector(size), 3000, fitted(example.compressor, size)
    state = compressor.init_state(size, CompressorSeed(trial_seed=5))
    errors = np.empty((draws, size))
    for number in range(draws):
        payload, state = compressor.compress(x, state)
        errors[number] = compressor.decompress(payload).astype("float64") - x

    standard_errors = errors.std(axis=0) / draws**0.5 + 1e-6
    deviations = abs(errors.mean(axis=0)) / standard_errors
    assert (deviations <= 3).mean() >= 0.95  # of a normal distribution: 99.7 %
    assert deviations.max() < 5
    assert example.mean_squared_error is not None
    mean_squared_error = float((errors**2).sum(axis=1).mean())
    assert mean_squared_error <= 1.05 * example.mean_squared_error(x.astype("float64"))


@every_error_feedback
@pytest.mark.parametrize("size", [1, 29, 3000])
def test_decompressed_vectors_and_residual_add_up_to_all_gradients(compressor: Compressor, size: int) -> None:
    """This invariant of error feedback is the reason why nothing that was not sent is lost."""
    state, sent, total = compressor.init_state(size, CompressorSeed()), np.zeros(size), np.zeros(size)
    for number in range(100):
        gradient = random_vector(size, number=number) + np.float32(0.1)
        payload, state = compressor.compress(gradient, state)
        sent, total = sent + compressor.decompress(payload), total + gradient

    assert np.linalg.norm(sent + state.residual - total) <= 1e-5 * np.linalg.norm(total)
    assert state.reset_count == 0


@every_compressor
def test_zero_vector_stays_zero(compressor: Compressor) -> None:
    """A division by a norm of zero would give NaN. Signs without a scale have no zero."""
    fitted_compressor = fitted(compressor, 20)

    decompressed = fitted_compressor.decompress(compress_once(fitted_compressor, np.zeros(20, "float32")))

    assert (abs(decompressed) == float(compressor == Sign(scale="none"))).all()


@every_example
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_stays_visible(example: Example, value: float) -> None:
    """The divergence of one worker must end the trial with its reason; the compressor must not hide it."""
    x, compressor = random_vector(29), fitted(example.compressor, 29)
    x[3] = value

    decompressed = compressor.decompress(compress_once(compressor, x))

    assert not (example.shows_non_finite and np.isfinite(decompressed).all())


@every_compressor
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_payloads_are_finite_again_after_a_value_that_is_not(compressor: Compressor, value: float) -> None:
    """A residual with NaN would make all later payloads useless."""
    compressor = fitted(compressor, 29)
    state = compressor.init_state(29, CompressorSeed())
    x = random_vector(29)
    x[3] = value
    _, state = compressor.compress(x, state)

    for number in range(1, 4):
        payload, state = compressor.compress(random_vector(29, number=number), state)
        assert np.isfinite(compressor.decompress(payload)).all()


@every_compressor
def test_equal_seeds_give_equal_payloads(compressor: Compressor) -> None:
    """A trial must be repeatable from its seed, vector by vector."""
    x, seed = random_vector(500), CompressorSeed(trial_seed=3, sender=1)
    compressor = fitted(compressor, x.size)
    states = [compressor.init_state(x.size, seed) for _ in range(2)]
    for _ in range(3):
        (first, states[0]), (second, states[1]) = (compressor.compress(x, state) for state in states)
        assert payload_to_bytes(first).tobytes() == payload_to_bytes(second).tobytes()


@every_unbiased_compressor
def test_random_numbers_differ_by_trial_and_vector_and_only_shared_ones_are_equal_on_all_senders(
    example: Example,
) -> None:
    """Equal rounding errors of all workers would not cancel out; payloads that are added need equal positions."""
    compressor, x = fitted(example.compressor, 500), np.linspace(0.1, 1, 500, dtype="float32")
    if example.is_exact:
        pytest.skip("no random number changes the decompressed vector")
    payload, state = compressor.compress(x, compressor.init_state(x.size, CompressorSeed(3, 0)))
    next_payload, _ = compressor.compress(x, state)
    vectors = [payload, next_payload, *(compress_once(compressor, x, CompressorSeed(*s)) for s in ((4, 0), (3, 1)))]

    first, of_next_vector, of_other_trial, of_other_sender = (compressor.decompress(vector) for vector in vectors)

    assert not np.array_equal(first, of_next_vector)
    assert not np.array_equal(first, of_other_trial)
    assert np.array_equal(first, of_other_sender) == (compressor.aggregation == "payloads")


@every_compressor
def test_compressing_changes_neither_the_vector_nor_the_state(compressor: Compressor) -> None:
    """The same gradient may be sent to several peers; a state that is used again gives the same payload."""
    x, compressor = np.linspace(-9e4, 9e4, 99, dtype="float32"), fitted(compressor, 99)
    before, (_, state) = x.tobytes(), compressor.compress(x, compressor.init_state(x.size, CompressorSeed()))

    first, _ = compressor.compress(x, state)
    second, _ = compressor.compress(x, state)

    assert x.tobytes() == before
    assert payload_to_bytes(first).tobytes() == payload_to_bytes(second).tobytes()


@every_example
@pytest.mark.parametrize("size", [1, 99, 5000, 70_000])
def test_compressor_works_on_the_device_of_the_vector(example: Example, size: int, device: ComputeDevice) -> None:
    """A gradient is compressed before it leaves the device; the host decompresses it to the bits of the device."""
    x, compressor = random_vector(size), fitted(example.compressor, size)

    payload, state = compressor.compress(device.to_device(x), compressor.init_state(x.size, CompressorSeed()))
    decompressed = compressor.decompress(payload)
    compressor.compress(device.to_device(x), state)

    assert type(decompressed) is type(device.to_device(x))
    on_host = bytes_to_vector(compressor, payload_to_bytes(payload, device.to_host), size, "float32")
    assert on_host.tobytes() == device.to_host(decompressed).tobytes()
    exact = x.astype("float64")
    error = squared_norm(on_host - exact)
    assert error <= (1 + 1e-5) * example.squared_error(exact) + 1e-12 * squared_norm(exact)


@every_example
@pytest.mark.parametrize("strategy", [AllReduce(), ParameterServer(servers=2), LocalSgd(period=2), STREAMING])
def test_trial_on_a_device_that_refuses_what_a_gpu_refuses_gives_the_bits_of_the_cpu(
    example: Example, strategy: AllReduce | ParameterServer | LocalSgd | DiLoCo, use_guarded_device: Callable[[], None]
) -> None:
    """A payload is compressed on the device or on the host, whichever the strategy does, and leaves from the host.

    Random numbers of a GPU differ from those of the CPU.
    """
    strategy = strategy.model_copy(update={"compress": example.compressor})
    if list(strategy.find_scenario_conflicts(context(3))):
        pytest.skip("the strategy does not allow this compressor")
    workload = {"precision": "fp32", "optimiser": {"kind": "sgd", "rate": 0.01}}
    on_cpu = SimulatedTrial.of(strategy, 4, 3, 6, **workload)

    use_guarded_device()
    on_device = SimulatedTrial.of(strategy, 4, 3, 6, **workload)

    if not draws_random_offsets(example.compressor):
        assert on_device.params_sha256 == on_cpu.params_sha256
    assert np.isfinite([on_cpu.loss, on_device.loss]).all()


def draws_random_offsets(compressor: Compressor) -> bool:
    """Return whether the device draws random numbers for the payload."""
    inner = compressor.inner if isinstance(compressor, ErrorFeedback | LargeArraysOnly) else compressor
    return isinstance(inner, Int8 | Qsgd | TernGrad) and inner != Int8(rounding="nearest")


@every_compressor
def test_trial_with_servers_sends_the_bytes_of_the_plan_and_learns(compressor: Compressor) -> None:
    """Every worker keeps one state per shard; each shard has its own length and scales."""
    strategy = ParameterServer(servers=3, compress=compressor)
    rate = 0.002 if compressor == Sign(scale="none") else 0.05
    workload = {"precision": "fp32", "optimiser": {"kind": "sgd", "rate": rate}}
    trial = SimulatedTrial.of(strategy, 60, 2, 8, **workload)

    for worker in trial.workers:
        (stop,) = trial.events(worker, "node_stop")
        assert stop["value"]["payload_bytes_sent"] == 60 * trial.plan.bytes_per_step[worker]
    assert trial.loss < 0.9 * SimulatedTrial.of(strategy, 1, 2, 8, **workload).loss


@every_compressor
@pytest.mark.parametrize("strategy", [AllReduce(), ParameterServer(servers=2), LocalSgd(period=2)], ids=repr)
def test_workers_that_read_their_state_from_a_checkpoint_before_each_step_get_the_same_bits(
    compressor: Compressor,
    strategy: AllReduce | ParameterServer | LocalSgd,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Residuals, and numbers of random draws, are part of what a worker must not lose."""
    strategy = strategy.model_copy(update={"compress": compressor})
    if list(strategy.find_scenario_conflicts(context(3))):
        pytest.skip("the strategy does not allow this compressor")
    workload = {"precision": "fp32", "optimiser": {"kind": "sgd", "rate": 0.01}}
    trial = SimulatedTrial.of(strategy, 4, 3, 6, **workload)

    stored = store_state_before_each_step(monkeypatch)
    restored = SimulatedTrial.of(strategy, 4, 3, 6, **workload)

    assert restored.params_sha256 == trial.params_sha256
    assert stored.count == 4 * 3


@every_compressor
def test_states_of_two_workers_become_those_of_three_and_of_one(compressor: Compressor) -> None:
    """A worker may fail in a trial with any compressor, and be replaced."""
    compressor, states = fitted(compressor, 50), []
    for sender in range(2):
        state = compressor.init_state(50, CompressorSeed(1, sender))
        for number in range(3):
            _, state = compressor.compress(random_vector(50, number=number), state)
        states.append(state)

    for old_ranks in ((1, None, 0), (1,)):
        changed = change_compressor_states(states, WorkerChange(old_ranks, 2), range(len(old_ranks)))
        payloads = [compressor.compress(random_vector(50, number=3), state)[0] for state in changed]
        assert {payload.formats for payload in payloads} == {compress_once(compressor, random_vector(50)).formats}


@every_compressor
def test_compressor_that_adds_momentum_is_rejected_with_an_optimiser_that_does(compressor: Compressor) -> None:
    """Momentum that is added twice makes other updates than either of the two."""
    strategy = ParameterServer(compress=compressor)
    workload = {"precision": "fp32", "optimiser": Momentum(rate=0.05).model_dump()}

    if applies_momentum(compressor):
        with pytest.raises(ValueError, match="adds momentum to gradients, and optimiser momentum"):
            SimulatedTrial.of(strategy, 1, 2, 8, **workload)
    else:
        assert SimulatedTrial.of(strategy, 1, 2, 8, **workload).stop


@pytest.mark.torch
@every_compressor
def test_every_compressor_compresses_the_gradients_of_a_module_of_pytorch(compressor: Compressor) -> None:
    """The gradients of a module are written to one vector; a compressor must not keep a view of it."""
    pytest.importorskip("torch")
    workload = {"model": torch_net("Values").model_dump(mode="json"), "precision": "fp32"}
    workload["optimiser"] = {"kind": "sgd", "rate": 0.002 if compressor == Sign(scale="none") else 0.05}

    trial = SimulatedTrial.of(AllReduce(compress=compressor), 60, 3, 12, **workload)

    losses = [row["loss"] for row in trial.rows(trial.workers[0], "node_steps")]
    assert len({row["value"] for name in trial.workers for row in trial.events(name, "node_hash")}) == 1
    assert sum(losses[-12:]) < sum(losses[:12])
