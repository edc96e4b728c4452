"""Changes to `torch.distributed` in a metered process."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

from .session import Session


def replace_gloo(module: ModuleType, session: Session) -> None:
    """Let the metered class stand for gloo's in `torch.distributed.distributed_c10d`, which is `module`."""
    from .inner_groups import metered_class  # noqa: PLC0415 - needs PyTorch, which only now is imported

    module.ProcessGroupGloo = metered_class(module.ProcessGroupGloo, session)  # type: ignore[attr-defined]
    _check_backend(module)
    if session.settings.dilation != 1:
        multiply_time_limits(module, session.settings.dilation)
    if session.is_dry_run:
        _replace_rendezvous(module)


def multiply_time_limits(module: ModuleType, dilation: float) -> None:
    """Multiply the time limits of process groups, which are virtual seconds, by the wall seconds per virtual second."""
    for name in ("init_process_group", "new_group"):
        setattr(module, name, _with_multiplied_time_limit(getattr(module, name), module.default_pg_timeout, dilation))


def _with_multiplied_time_limit(
    function: Callable[..., Any], default: timedelta, dilation: float
) -> Callable[..., Any]:
    """Return a function whose argument `timeout`, or its default, is multiplied."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def multiplied(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.arguments["timeout"] = (bound.arguments.get("timeout") or default) * dilation
        return function(*bound.args, **bound.kwargs)

    return multiplied


def _check_backend(module: ModuleType) -> None:
    """Let `init_process_group` fail for nccl on a node without GPU, with the remedy."""
    init_process_group = module.init_process_group

    @functools.wraps(init_process_group)
    def checked(backend: str | None = None, *arguments: Any, **named: Any) -> Any:
        if backend is not None and "nccl" in str(backend).lower() and not module.torch.cuda.is_available():
            raise RuntimeError(
                f'init_process_group("{backend}"): this node has no GPU, which nccl needs; '
                'write init_process_group("gloo"), and keep models and tensors on the CPU'
            )
        return init_process_group(backend, *arguments, **named)

    module.init_process_group = checked  # type: ignore[attr-defined]


def _replace_rendezvous(module: ModuleType) -> None:
    """Let a dry run, which is the only process of its group, not wait for other ranks."""

    def meet_without_others(_: str, rank: int = -1, world_size: int = -1, **__: Any) -> Iterator[tuple[Any, int, int]]:
        own_rank = rank if rank >= 0 else int(os.environ["RANK"])
        group_size = world_size if world_size >= 0 else int(os.environ["WORLD_SIZE"])
        yield sys.modules["torch._C._distributed_c10d"].HashStore(), own_rank, group_size

    def skip_barrier(*_: Any, **__: Any) -> None:
        """Do nothing."""

    module.rendezvous = meet_without_others  # type: ignore[attr-defined]
    module._store_based_barrier = skip_barrier  # type: ignore[attr-defined] # noqa: SLF001
