"""Process groups that execute the collectives of a script: gloo's, Ensayo's, or none in a dry run."""

import sys
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
from torch.distributed.distributed_c10d import ProcessGroup

from .counting_group import CountingGroup
from .metered_group import InnerGroup, MeteredGroup
from .protocol import ENSAYO
from .session import Session


def metered_class(gloo: Any, session: Session) -> type:
    """Return the class that replaces PyTorch's `ProcessGroupGloo`, with the same constructor.

    It starts the metering, since a process that creates a process group is a rank.
    """

    class ProcessGroupGloo(MeteredGroup):
        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta = timedelta(minutes=30)) -> None:
            session.note_process_group()
            inner = _make_inner(gloo, session, store, rank, size, timeout)
            super().__init__(session, store, inner, rank, size)

    for name in ("Options", "Device", "create_device", "create_default_device"):
        setattr(ProcessGroupGloo, name, getattr(gloo, name, None))
    return ProcessGroupGloo


def _make_inner(
    gloo: Callable[..., Any], session: Session, store: Any, rank: int, size: int, timeout: timedelta
) -> InnerGroup:
    if session.is_dry_run:
        return InnerGroup(CountingGroup(size, session.cpu_clock))
    if session.settings.process_group == ENSAYO:
        sys.path += [folder for folder in session.settings.ensayo_path if folder not in sys.path]
        ensayo = import_module("services.commands.process_group")
        settings = dict(session.settings.process_group_settings)
        return InnerGroup(ensayo.make_process_group(store, rank, size, timeout, settings))
    backend = gloo(store, rank, size, timeout=timeout)
    backend._set_sequence_number_for_group()  # noqa: SLF001 - as PyTorch does
    inner = ProcessGroup(store, rank, size)
    inner._set_default_backend(ProcessGroup.BackendType.GLOO)  # noqa: SLF001
    inner._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, backend)  # noqa: SLF001
    return InnerGroup(inner, backend)
