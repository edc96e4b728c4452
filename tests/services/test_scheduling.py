"""Slices of a core, as this host's kernel knows them."""

import os
import platform
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.scheduling import slice_ns, wake_soon

LEAST = (6, 12)


def kernel() -> tuple[int, ...]:
    """Version of this host's kernel."""
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


@pytest.mark.skipif(kernel() < LEAST or os.uname().machine not in {"x86_64", "aarch64"}, reason="no slices to ask for")
def test_a_thread_gets_the_least_slice_and_so_do_those_that_it_starts() -> None:
    """gRPC starts its threads later."""

    def ask() -> tuple[int | None, int | None, int | None]:
        before = slice_ns()
        wake_soon()
        with ThreadPoolExecutor(1) as inner:
            return before, slice_ns(), inner.submit(slice_ns).result()

    with ThreadPoolExecutor(1) as pool:  # not for the threads of other tests
        before, after, started = pool.submit(ask).result()

    assert before != after == started == 100_000
