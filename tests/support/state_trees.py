"""Random states, and their comparison bit for bit."""

import struct
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from services.checkpoints.state_tree import STORABLE_DTYPES
from services.compressors import CompressorSeed
from services.compressors.encoding.randomness import VectorRandomness
from services.compressors.sparsification.dgc import DgcState
from services.learning.optimisers import OptimiserState

storable_arrays = arrays(
    st.sampled_from(sorted(STORABLE_DTYPES)), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
)
plain_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.text(max_size=5),
    storable_arrays,
    storable_arrays.filter(lambda array: array.size).map(lambda array: array.reshape(-1)[0]),
)
keys = st.one_of(st.integers(), st.text(max_size=4))


def make_containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return containers and records with these items."""
    return st.one_of(
        st.lists(items, max_size=3),
        st.lists(items, max_size=3).map(tuple),
        st.dictionaries(keys, items, max_size=3),
        st.builds(OptimiserState, st.integers(0), st.lists(storable_arrays, max_size=2).map(tuple)),
        st.builds(DgcState, items, items, st.integers(0), st.integers(0)),
        st.builds(VectorRandomness, st.builds(CompressorSeed, st.integers(), st.integers()), st.integers(0)),
    )


states = st.recursive(plain_values, make_containers, max_leaves=12)


def describe_bits(state: Any) -> Any:
    """Return a value that is equal for two states only if all of their types and bits are."""
    if isinstance(state, np.ndarray | np.generic):
        return type(state), state.dtype.str, state.shape, state.tobytes()
    if isinstance(state, float):
        return float, struct.pack("<d", state)
    if isinstance(state, dict):
        return dict, [(type(key), key, describe_bits(item)) for key, item in state.items()]
    if isinstance(state, tuple | list):
        return type(state), [describe_bits(item) for item in state]
    if isinstance(state, OptimiserState):
        return OptimiserState, state.update_count, describe_bits(state.slots)
    return type(state), state
