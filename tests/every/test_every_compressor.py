"""Every compressor through one battery: what comes back, what it weighs, what it leaves alone."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import TypeAdapter

from services.compressors import AnyCompressor, Compressor, Fp16, IdentityCompressor
from services.runtime.device import Device
from services.schema.arrays import HostArray

EXAMPLES: list[tuple[Compressor, float, float]] = [  # member, largest relative error, bytes per entry
    (IdentityCompressor(), 0.0, 4.0),
    (Fp16(), 2.0**-11, 2.0),
]

every_compressor = pytest.mark.parametrize(
    ("compressor", "error", "bytes_per_entry"), EXAMPLES, ids=[repr(compressor) for compressor, *_ in EXAMPLES]
)
vectors = arrays(np.float32, st.integers(1, 50), elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))


def test_every_member_of_the_family_of_compressors_stands_in_the_table() -> None:
    """A compressor that is not in the table is not tested."""
    union, _ = get_args(AnyCompressor)

    assert {type(compressor) for compressor, *_ in EXAMPLES} == set(get_args(union))


@every_compressor
def test_a_compressor_is_read_from_what_it_writes(compressor: Compressor, error: float, bytes_per_entry: float) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyCompressor).validate_json(compressor.model_dump_json()) == compressor


@every_compressor
@given(x=vectors)
def test_what_comes_back_is_what_went_in_within_its_error(
    compressor: Compressor, error: float, bytes_per_entry: float, x: HostArray
) -> None:
    """The bound that the member's docstring states; below 2⁻¹⁴ it is the absolute error that has one."""
    payload, _ = compressor.compress(x, compressor.init_state(x.size))

    back = compressor.decompress(payload)

    assert back.shape == x.shape
    assert back.dtype == x.dtype
    assert (abs(back - x) <= error * np.maximum(abs(x), 2.0**-14)).all()


@every_compressor
def test_a_payload_weighs_its_arrays(compressor: Compressor, error: float, bytes_per_entry: float) -> None:
    """Bytes per link are counted from this before a run and compared with the wire after it."""
    x = np.ones(1000, "float32")

    payload, _ = compressor.compress(x, compressor.init_state(x.size))

    assert payload.entries == x.size
    assert payload.nbytes == sum(array.nbytes for array in payload.arrays) == bytes_per_entry * x.size


@every_compressor
def test_compressing_leaves_the_vector_alone(compressor: Compressor, error: float, bytes_per_entry: float) -> None:
    """The same gradient may go to several peers."""
    x = np.linspace(-9e4, 9e4, 99, dtype="float32")
    before = x.tobytes()

    compressor.compress(x, compressor.init_state(x.size))

    assert x.tobytes() == before


@every_compressor
def test_it_works_where_the_vector_lives(
    compressor: Compressor, error: float, bytes_per_entry: float, device: Device
) -> None:
    """A gradient is made smaller before it leaves the device, not after."""
    x = np.linspace(-1, 1, 99, dtype="float32")

    payload, _ = compressor.compress(device.to_device(x), compressor.init_state(x.size))
    back = compressor.decompress(payload)

    assert type(back) is type(device.to_device(x))
    np.testing.assert_allclose(device.to_host(back), x, rtol=error, atol=1e-6 * (error > 0))
