"""The flat parameter vector and its ranges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.learning.layout import ParameterLayout, VectorRange, equal_vector_ranges
from services.runtime.device import ComputeDevice

sizes = st.integers(0, 10_000)
counts = st.integers(1, 64)
LAYOUT = ParameterLayout(arrays=(("weight", (2, 3)), ("scale", ()), ("bias", (3,))))


@given(size=sizes, parts=counts)
def test_ranges_cover_the_vector_and_do_not_overlap(size: int, parts: int) -> None:
    """An entry in no range is never learned; one in two ranges is learned twice."""
    chunks = equal_vector_ranges(size, parts)

    assert [i for chunk in chunks for i in range(*chunk)] == list(range(size))


@given(size=sizes, parts=counts)
def test_ranges_differ_by_at_most_one_entry(size: int, parts: int) -> None:
    """All workers wait for the largest chunk."""
    lengths = {chunk.size for chunk in equal_vector_ranges(size, parts)}

    assert max(lengths) - min(lengths) <= 1


def test_ranges_follow_the_formula() -> None:
    """Chunk k of n is [⌊d·k/n⌋, ⌊d·(k+1)/n⌋): every node computes it alone, and all must agree."""
    assert equal_vector_ranges(10, 4) == (VectorRange(0, 2), VectorRange(2, 5), VectorRange(5, 7), VectorRange(7, 10))
    assert equal_vector_ranges(1, 2) == (VectorRange(0, 0), VectorRange(0, 1))


def test_pack_reverses_unpack(device: ComputeDevice) -> None:
    """A model sees arrays, and all other code sees one vector."""
    vector = device.to_device(np.arange(10.0))

    arrays = LAYOUT.unpack(vector)

    assert LAYOUT.parameter_count == 10
    assert {name: array.shape for name, array in arrays.items()} == dict(LAYOUT.arrays)
    np.testing.assert_array_equal(device.to_host(LAYOUT.pack(arrays)), device.to_host(vector))


def test_unpacked_arrays_are_views() -> None:
    """A model reads the parameters in the vector itself; a copy would cost a pass over memory per step."""
    vector = np.zeros(10)

    LAYOUT.unpack(vector)["bias"][:] = 1

    assert vector.tolist() == [0] * 7 + [1] * 3


def test_a_range_is_a_view_of_the_vector() -> None:
    """Chunks are sent from the memory of the gradient."""
    vector = np.arange(10)

    assert np.shares_memory(VectorRange(2, 5).view(vector), vector)
    assert VectorRange(2, 5).view(vector).tolist() == [2, 3, 4]
