"""Operations of a process group, and the bytes that are counted for each.

The bytes are the size of the operation's input on this rank, as S in the usual cost formulas:

all_reduce, reduce, broadcast    the tensor
all_gather, gather               the tensor that this rank contributes
reduce_scatter                   the input of all ranks' parts
scatter                          the parts of all ranks, also on a rank that only receives its own
all_to_all                       the input of all ranks' parts
send, recv                       the tensor
barrier                          0

An operation on several tensors is one row with their sum. The data type is that of the first tensor.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

Arguments: TypeAlias = Sequence[Any]
FindInput: TypeAlias = Callable[[Arguments], Any]


def _first(arguments: Arguments) -> Any:
    return arguments[0]


def _second(arguments: Arguments) -> Any:
    return arguments[1]


def _nothing(_: Arguments) -> Any:
    return ()


# Each method of a process group, with the operation and the argument whose bytes are counted.
METHODS: dict[str, tuple[str, FindInput]] = {
    "allreduce": ("all_reduce", _first),
    "allreduce_coalesced": ("all_reduce", _first),
    "broadcast": ("broadcast", _first),
    "reduce": ("reduce", _first),
    "allgather": ("all_gather", _second),
    "_allgather_base": ("all_gather", _second),
    "all_gather_single": ("all_gather", _second),
    "allgather_coalesced": ("all_gather", _second),
    "all_gather_single_coalesced": ("all_gather", _second),
    "allgather_into_tensor_coalesced": ("all_gather", _second),
    "reduce_scatter": ("reduce_scatter", _second),
    "_reduce_scatter_base": ("reduce_scatter", _second),
    "reduce_scatter_single": ("reduce_scatter", _second),
    "reduce_scatter_single_coalesced": ("reduce_scatter", _second),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", _second),
    "gather": ("gather", _second),
    "scatter": ("scatter", _first),
    "alltoall": ("all_to_all", _second),
    "alltoall_base": ("all_to_all", _second),
    "all_to_all_single": ("all_to_all", _second),
    "send": ("send", _first),
    "recv": ("recv", _first),
    "recv_anysource": ("recv", _first),
    "barrier": ("barrier", _nothing),
}
REDUCING_OPERATIONS = {"all_reduce": 1, "reduce": 1, "reduce_scatter": 2}  # operation -> number of tensor arguments


def tensors_of(value: Any) -> Iterator[Any]:
    """Yield the tensors of an argument: one tensor, a list of tensors, or a list of lists of tensors."""
    if isinstance(value, Iterable) and not hasattr(value, "element_size"):
        for item in value:
            yield from tensors_of(item)
    else:
        yield value


def measure_input(method: str, arguments: Arguments, group_size: int) -> tuple[int, str]:
    """Return the bytes and the data type that are recorded for a call of this method; no type if there is no tensor."""
    operation, find_input = METHODS[method]
    tensors = find_input(arguments)
    if type(tensors) is not list or len(tensors) != 1 or type(tensors[0]) is list:  # not the usual case
        tensors = list(tensors_of(tensors))
    size = sum(tensor.nbytes for tensor in tensors) if len(tensors) != 1 else tensors[0].nbytes
    dtype = _name_of(tensors[0].dtype) if tensors else ""
    return (size * group_size if operation == "scatter" else size), dtype


@cache
def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def find_root_rank(method: str, arguments: Arguments) -> int | None:
    """Return the rank from which a broadcast starts; None for other operations.

    The second argument is the options of the call or the rank itself, which is 0 by default.
    """
    if METHODS[method][0] != "broadcast":
        return None
    options = arguments[1] if len(arguments) > 1 else 0
    return int(getattr(options, "rootRank", options))


def find_reduce_operation(method: str, arguments: Arguments) -> str | None:
    """Return how a call reduces the entries of all ranks, such as sum or max; None for other operations.

    The options of the call, or an argument after the tensors, state it; the default is a sum.
    """
    tensor_arguments = REDUCING_OPERATIONS.get(METHODS[method][0])
    if tensor_arguments is None:
        return None
    for option in arguments[tensor_arguments:]:
        reduction = getattr(option, "reduceOp", option)
        if name := getattr(getattr(reduction, "op", reduction), "name", None):
            return str(name).lower()
    return "sum"
