"""Process group of a dry run: no communication; every rank is taken to have the same data as this one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import process_time
from typing import Any

import torch
from torch.distributed.distributed_c10d import ReduceOp, Work

from .collective_sizes import METHODS, tensors_of
from .dry_run import CpuClock


class CompletedWork(Work):
    """Handle of a collective that is complete."""

    def __init__(self, tensors: list[Any], source_rank: int) -> None:
        super().__init__()
        self._tensors, self._sender = tensors, source_rank

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._tensors

    def source_rank(self) -> int:
        return self._sender

    def _source_rank(self) -> int:
        return self._sender

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class CountingGroup:
    """Operations that give this rank the result that equal data on all ranks would give.

    The CPU time that they use is left out of the dry run's clock.
    """

    def __init__(self, size: int, clock: CpuClock) -> None:
        self._size, self._clock = size, clock

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"the process group of a dry run has no {name}")
        return lambda *arguments, **named: self._call(name, (*arguments, *named.values()))

    def monitored_barrier(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def shutdown(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""

    def set_timeout(self, _: Any) -> None:
        """Do nothing."""

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def _call(self, method: str, arguments: Sequence[Any]) -> CompletedWork:
        with self._excluded_from_clock(), torch.no_grad():
            outputs = self._outputs(METHODS[method][0], arguments)
        return CompletedWork(outputs, self._size - 1)

    @contextmanager
    def _excluded_from_clock(self) -> Iterator[None]:
        begin_s = process_time()
        yield
        self._clock.exclude(process_time() - begin_s)

    def _outputs(self, operation: str, arguments: Sequence[Any]) -> list[Any]:
        if operation == "barrier":
            return []
        outputs = list(tensors_of(arguments[0]))
        if operation in ("all_reduce", "reduce"):
            self._reduce(outputs, arguments[1:])
        elif operation in ("all_gather", "gather"):
            inputs = list(tensors_of(arguments[1]))
            for index, output in enumerate(outputs):
                _fill(output, inputs[index % len(inputs)])
        elif operation in ("reduce_scatter", "scatter"):
            self._keep_own_part(outputs, list(tensors_of(arguments[1])))
            self._reduce(outputs, arguments[2:] if operation == "reduce_scatter" else [ReduceOp.AVG])
        elif operation == "all_to_all":
            for output, source in zip(outputs, tensors_of(arguments[1]), strict=True):
                _fill(output, source)
        return outputs

    def _reduce(self, tensors: list[Any], options: Sequence[Any]) -> None:
        operation = next((getattr(option, "reduceOp", option) for option in options), ReduceOp.SUM)
        for tensor in tensors:
            if operation == ReduceOp.SUM:
                tensor.mul_(self._size)
            elif operation == ReduceOp.PRODUCT:
                tensor.pow_(self._size)
            elif operation == ReduceOp.BXOR and self._size % 2 == 0:
                tensor.zero_()

    def _keep_own_part(self, outputs: list[Any], inputs: list[Any]) -> None:
        """Give each output this rank's part of its input, which is the first one, because this is rank 0."""
        for index, output in enumerate(outputs):
            if inputs:  # the root of a scatter has them
                _fill(output, inputs[index * len(inputs) // len(outputs)])


def _fill(output: Any, source: Any) -> None:
    """Copy the source over the output, repeatedly if it is shorter."""
    values = source.flatten()
    count = output.numel()
    if values.numel() == 0 or count == 0:
        return
    repeats = -(-count // values.numel())
    output.copy_(values.repeat(repeats)[:count].view(output.shape))
