"""The random generator of guarded arrays: the methods that CuPy's has, and numbers that differ from NumPy's."""

from typing import Any

import numpy as np

from guarded_arrays.cupy_record import GENERATOR_MEMBERS, check_arguments
from guarded_arrays.guarded_array import to_device_result, to_values

SPAWN_KEY = (0xC0,)  # NumPy and CuPy draw different numbers from one seed


class GuardedGenerator:
    """Random generator with the methods of CuPy's `Generator`."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=SPAWN_KEY))

    def __getattr__(self, name: str) -> Any:
        if name not in GENERATOR_MEMBERS:
            raise AttributeError(f"generators of CuPy have no method {name!r}")
        parameters, method = GENERATOR_MEMBERS[name] or "", getattr(self._generator, name)

        def guarded_method(*args: Any, **kwargs: Any) -> Any:
            check_arguments(f"Generator.{name}", parameters, args, kwargs)
            result = method(*to_values(args), **{key: to_values(value) for key, value in kwargs.items()})
            return to_device_result(np.asarray(result))

        return guarded_method


def default_rng(seed: int) -> GuardedGenerator:
    return GuardedGenerator(seed)
