"""Tests of every compressor: its error, its payload size, and that its input is not changed."""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import TypeAdapter
from simulated_trial import SimulatedTrial
from strategy_contexts import context

from services.compressors import AnyCompressor, Compressor, CompressorSeed, Fp16, IdentityCompressor
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray
from services.strategies import AllReduce, DiLoCo, LocalSgd, ParameterServer

EXAMPLES: list[tuple[Compressor, float, float]] = [  # member, largest relative error, bytes per entry
    (IdentityCompressor(), 0.0, 4.0),
    (Fp16(), 2.0**-11, 2.0),
]
STREAMING = DiLoCo(period=2, fragments=2, overlap_steps=1)

every_compressor = pytest.mark.parametrize(
    ("compressor", "error", "bytes_per_entry"), EXAMPLES, ids=[repr(compressor) for compressor, *_ in EXAMPLES]
)
vectors = arrays(np.float32, st.integers(1, 50), elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))


def test_examples_table_contains_every_compressor() -> None:
    """A compressor that is not in the table is not tested."""
    union, _ = get_args(AnyCompressor)

    assert {type(compressor) for compressor, *_ in EXAMPLES} == set(get_args(union))


@every_compressor
def test_compressor_survives_a_json_round_trip(compressor: Compressor, error: float, bytes_per_entry: float) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyCompressor).validate_json(compressor.model_dump_json()) == compressor


@every_compressor
@given(x=vectors)
def test_decompressed_vector_equals_the_input_within_the_error_bound(
    compressor: Compressor, error: float, bytes_per_entry: float, x: HostArray
) -> None:
    """The bound is that of the compressor's docstring; entries below 2⁻¹⁴ have an absolute bound."""
    payload, _ = compressor.compress(x, compressor.init_state(x.size, CompressorSeed()))

    decompressed = compressor.decompress(payload)

    assert decompressed.shape == x.shape
    assert decompressed.dtype == x.dtype
    assert (abs(decompressed - x) <= error * np.maximum(abs(x), 2.0**-14)).all()


@every_compressor
def test_payload_size_is_the_size_of_its_arrays(compressor: Compressor, error: float, bytes_per_entry: float) -> None:
    """Bytes per link are predicted from this size before a run and compared with the sent bytes after it."""
    x = np.ones(1000, "float32")

    payload, _ = compressor.compress(x, compressor.init_state(x.size, CompressorSeed()))

    assert payload.entries == x.size
    assert payload.nbytes == sum(array.nbytes for array in payload.arrays) == bytes_per_entry * x.size


@every_compressor
def test_compressing_does_not_change_the_vector(compressor: Compressor, error: float, bytes_per_entry: float) -> None:
    """The same gradient may be sent to several peers."""
    x = np.linspace(-9e4, 9e4, 99, dtype="float32")
    before = x.tobytes()

    compressor.compress(x, compressor.init_state(x.size, CompressorSeed()))

    assert x.tobytes() == before


@every_compressor
def test_compressor_works_on_the_device_of_the_vector(
    compressor: Compressor, error: float, bytes_per_entry: float, device: ComputeDevice
) -> None:
    """A gradient is compressed before it leaves the device."""
    x = np.linspace(-1, 1, 99, dtype="float32")

    payload, _ = compressor.compress(device.to_device(x), compressor.init_state(x.size, CompressorSeed()))
    decompressed = compressor.decompress(payload)

    assert type(decompressed) is type(device.to_device(x))
    np.testing.assert_allclose(device.to_host(decompressed), x, rtol=error, atol=1e-6 * (error > 0))


@every_compressor
@pytest.mark.parametrize("strategy", [AllReduce(), ParameterServer(servers=2), LocalSgd(period=2), STREAMING])
def test_trial_on_a_device_that_refuses_what_a_gpu_refuses_gives_the_bits_of_the_cpu(
    compressor: Compressor,
    error: float,
    bytes_per_entry: float,
    strategy: AllReduce | ParameterServer | LocalSgd | DiLoCo,
    use_guarded_device: Callable[[], None],
) -> None:
    """A payload is compressed on the device or on the host, whichever the strategy does, and leaves from the host."""
    strategy = strategy.model_copy(update={"compress": compressor})
    if list(strategy.find_scenario_conflicts(context(3))):
        pytest.skip("the strategy does not allow this compressor")
    on_cpu = SimulatedTrial.of(strategy, 4, 3, 6, precision="fp32")

    use_guarded_device()

    assert SimulatedTrial.of(strategy, 4, 3, 6, precision="fp32").params_sha256 == on_cpu.params_sha256
