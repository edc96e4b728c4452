"""Tensors as NumPy vectors, and the reductions of their entries."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from services.collectives.execution.payload_codec import CombineEntries
from services.schema.arrays import HostArray

NUMPY_TYPES = (
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
)
# Types that NumPy lacks, or computes with slowly: vectors of them contain whole numbers with the same bits.
TORCH_TYPES = {torch.float16: np.int16, torch.bfloat16: np.int16, torch.bool: np.uint8}

RED_OP = ReduceOp.RedOpType
_NUMPY_FUNCTIONS = {
    RED_OP.SUM: np.add,
    RED_OP.AVG: np.add,
    RED_OP.PRODUCT: np.multiply,
    RED_OP.MIN: np.minimum,
    RED_OP.MAX: np.maximum,
}
_TORCH_FUNCTIONS: dict[Any, Callable[..., Tensor]] = {
    RED_OP.SUM: torch.add,
    RED_OP.AVG: torch.add,
    RED_OP.PRODUCT: torch.mul,
    RED_OP.MIN: torch.minimum,
    RED_OP.MAX: torch.maximum,
}
FLOATING_OPS = frozenset({RED_OP.AVG})  # have no meaning for whole numbers
ADDING_OPS = frozenset({RED_OP.SUM, RED_OP.AVG})


class Reduction(NamedTuple):
    """Reduction of tensors of one type over all ranks."""

    op: Any  # a RedOpType
    combine_entries: CombineEntries

    @property
    def is_sum(self) -> bool:
        """Whether the reduction adds, so that its summands may be compressed."""
        return self.op in ADDING_OPS


def find_reductions(reduce_op: Any, tensors: Sequence[Tensor]) -> list[Reduction] | None:
    """Return how each of several tensors is reduced; None if a tensor is left to gloo.

    `reduce_op` is a `ReduceOp`, one of its constants, or options that contain one.
    """
    op = getattr(reduce_op, "reduceOp", reduce_op)
    op = getattr(op, "op", op)
    reductions = [reduction for tensor in tensors if (reduction := _find_reduction(op, tensor.dtype))]
    return reductions if len(reductions) == len(tensors) and are_exchangeable(*tensors) else None


def _find_reduction(op: Any, dtype: torch.dtype) -> Reduction | None:
    if op in FLOATING_OPS and not dtype.is_floating_point:
        return None
    if dtype in NUMPY_TYPES and op in _NUMPY_FUNCTIONS:
        return Reduction(op, partial(_combine_with_numpy, _NUMPY_FUNCTIONS[op]))
    if dtype in TORCH_TYPES and op in _TORCH_FUNCTIONS:
        return Reduction(op, partial(_combine_with_torch, _TORCH_FUNCTIONS[op], dtype))
    return None


def _combine_with_numpy(function: "np.ufunc", received: HostArray, own: HostArray) -> None:
    with np.errstate(all="ignore"):  # a script's overflow is no message of this process
        function(received, own, out=own)


def _combine_with_torch(
    function: Callable[..., Tensor], dtype: torch.dtype, received: HostArray, own: HostArray
) -> None:
    own_entries = torch.from_numpy(own).view(dtype)
    function(torch.from_numpy(received).view(dtype), own_entries, out=own_entries)


def are_exchangeable(*tensors: Tensor) -> bool:
    """Return whether all tensors are dense and in host memory, so that Ensayo's transport can exchange them."""
    return all(
        tensor.device.type == "cpu" and tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg())
        for tensor in tensors
    )


def to_vector(contiguous_tensor: Tensor) -> HostArray:
    """Return the entries of a contiguous tensor as a NumPy vector that shares its memory, shape (n,)."""
    flat = contiguous_tensor.detach().view(-1)
    if flat.dtype in TORCH_TYPES:
        flat = flat.view(torch.uint8 if flat.dtype is torch.bool else torch.int16)
    vector: HostArray = flat.numpy()
    return vector


def to_byte_vector(contiguous_tensor: Tensor) -> HostArray:
    """Return the bytes of a contiguous tensor of any type as a NumPy vector that shares its memory."""
    flat = contiguous_tensor.detach().view(-1)
    vector: HostArray = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
    return vector


def read_bytes(tensor: Tensor) -> HostArray:
    """Return the bytes of a tensor in the order of its entries; a copy unless the tensor is contiguous."""
    return to_byte_vector(tensor.detach().contiguous())


def divide_average(contiguous_tensor: Tensor, reduction: Reduction, rank_count: int) -> None:
    """Divide a sum by the number of its summands, in place, if the reduction is an average."""
    if reduction.op == RED_OP.AVG:
        contiguous_tensor.div_(rank_count)


class WritableTensors:
    """Contiguous memory for tensors that an operation changes.

    Tensors that are not contiguous are copied, and `write_back` copies the results into them.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = [tensor.detach() for tensor in tensors]
        self.contiguous = [tensor.contiguous() for tensor in self._tensors]

    def write_back(self) -> None:
        """Copy the results into the tensors that are not contiguous."""
        for tensor, contiguous in zip(self._tensors, self.contiguous, strict=True):
            if contiguous.data_ptr() != tensor.data_ptr():
                tensor.copy_(contiguous)
