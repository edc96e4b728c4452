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
    reject_nccl(module)
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


def reject_nccl(module: ModuleType) -> None:
    """Let the creation of process groups fail for nccl, with the remedy. Commands run on the CPU on every host."""
    for name in ("init_process_group", "new_group"):
        setattr(module, name, _with_checked_backend(getattr(module, name)))


def _with_checked_backend(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        backend = signature.bind(*arguments, **named).arguments.get("backend")
        if "nccl" in str(backend).lower():
            call = f"{function.__name__}(backend={str(backend)!r})"
            raise RuntimeError(
                f"{call}: commands run on the CPU, and nccl needs GPUs; write backend='gloo', and keep models and "
                "tensors on the CPU"
            )
        return function(*arguments, **named)

    return checked


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
