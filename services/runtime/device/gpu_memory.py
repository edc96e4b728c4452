"""The part of a GPU's memory that one worker may use."""

from services.schema.component import FrozenRecord
from services.schema.errors import HostError

# Memory that each process takes outside of CuPy's pool: the CUDA context, and the workspaces of libraries. This is an
# assumption: no GPU was available to measure it.
CONTEXT_BYTES = 512 << 20


class GpuMemoryShare(FrozenRecord):
    """Part of a GPU's memory that one worker may use.

    Several workers share a GPU. CuPy keeps freed memory for later arrays, so without a limit the first workers would
    leave nothing for the others.
    """

    declared_bytes: int | None = None  # None: an equal share of the GPU
    workers: int = 1  # that may use the GPU, each in a process of its own

    def limit_bytes(self, gpu_bytes: int) -> int:
        """Return the largest size of a worker's arrays together, on a GPU with `gpu_bytes` of memory.

        Raises:
            HostError: the GPU has too little memory.
        """
        equal_bytes = gpu_bytes // self.workers - CONTEXT_BYTES
        reason = f"each process on the GPU needs {_format_gib(CONTEXT_BYTES)} for CUDA itself"
        if equal_bytes <= 0:
            raise HostError(
                f"the GPU has {_format_gib(gpu_bytes)}, too little for {self.workers} workers, because {reason}; use "
                "fewer workers, or device: cpu"
            )
        if self.declared_bytes is not None and self.declared_bytes > gpu_bytes - CONTEXT_BYTES:
            raise HostError(
                f"gpu_memory: {_format_gib(self.declared_bytes)} is too much for a GPU with {_format_gib(gpu_bytes)}, "
                f"because {reason}; {_format_gib(equal_bytes)} is an equal share of its workers ({self.workers})"
            )
        return equal_bytes if self.declared_bytes is None else self.declared_bytes


def _format_gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.3g} GiB"
