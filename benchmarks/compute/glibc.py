"""Functions of the allocator of glibc, the usual C library of Linux.

With another C library, or with glibc older than 2.33, they raise an error: without them, memory of training cannot be
separated from memory that was free before.
"""

import ctypes
import gc
import sys
from typing import Any

from services.schema.errors import HostError

ALLOCATOR_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class AllocatorState(ctypes.Structure):
    """Structure that `mallinfo2` returns (its manual page explains the fields)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in ALLOCATOR_FIELDS.split())


def release_free_memory() -> None:
    """Return the free memory of Python and of the allocator to the kernel.

    Raises:
        HostError: the C library has no such function.
    """
    gc.collect()
    _find_function("malloc_trim")(ctypes.c_size_t(0))


def count_used_bytes() -> int:
    """Return the bytes that the program has allocated and not freed.

    Small objects of Python count only in a process with `PYTHONMALLOC=malloc`. The cache of attributes is emptied
    first: it keeps up to 4096 names alive, among them copies of "setflags" that NumPy creates whenever an array becomes
    read-only, and would look like a leak until it is full.

    Raises:
        HostError: the C library has no such function.
    """
    gc.collect()
    _clear_attribute_cache()
    mallinfo2 = _find_function("mallinfo2")
    mallinfo2.restype = AllocatorState
    state = mallinfo2()
    return int(state.uordblks + state.hblkhd)  # in the heap, and in mappings of their own


def _clear_attribute_cache() -> None:
    if sys.version_info >= (3, 13):
        sys._clear_internal_caches()  # noqa: SLF001 - documented
    else:
        sys._clear_type_cache()  # noqa: SLF001 - documented


def _find_function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except AttributeError:
        why = f"the C library of this host has no {name}"
        raise HostError(f"{why}; memory of training is measured on Linux with glibc 2.33 or newer") from None
