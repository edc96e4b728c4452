"""Arguments of a process group's methods: PyTorch calls them with options, and scripts with single values, too."""

from typing import Any

from torch import Tensor
from torch._C import _distributed_c10d as c10d


def to_tensor_list(tensors: Any) -> list[Tensor]:
    """Return a list of tensors for one tensor or a sequence of tensors."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def to_tensor_lists(tensors: Any) -> list[list[Tensor]]:
    """Return a list of lists of tensors for one sequence of tensors or several."""
    each = list(tensors)
    return [each] if each and isinstance(each[0], Tensor) else [list(inner) for inner in each]


def read_root_rank(options_or_rank: Any) -> int:
    """Return the rank from which a broadcast starts."""
    return int(getattr(options_or_rank, "rootRank", options_or_rank))


def make_options(class_name: str, options_or_value: Any) -> Any:
    """Return options of a class of PyTorch for a reduction or a root rank; return options as they are."""
    options = getattr(c10d, class_name)()
    if isinstance(options_or_value, type(options)):
        return options_or_value
    setattr(options, "rootRank" if hasattr(options, "rootRank") else "reduceOp", options_or_value)
    return options
