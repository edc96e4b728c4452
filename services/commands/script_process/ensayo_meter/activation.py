"""Installation of the metering in this process."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from .distributed_hooks import replace_gloo
from .import_hooks import AfterImport, ImportHooks
from .process_exit import end_at_exit
from .session import Session
from .settings import SETTINGS_VARIABLE, may_be_metered, read_settings
from .torch_hooks import mark_backward_passes, mark_forward_passes, mark_updates

Hook: TypeAlias = Callable[[ModuleType, Session], None]
HOOKS: dict[str, Hook] = {
    "torch.autograd": mark_backward_passes,
    "torch.distributed.distributed_c10d": replace_gloo,
    "torch.nn.modules.module": mark_forward_passes,
    "torch.optim.optimizer": mark_updates,
}


def activate() -> None:
    """Install the metering, if this process may be a rank. It acts once the script imports PyTorch."""
    if not may_be_metered():
        return
    session = Session(read_settings(Path(os.environ[SETTINGS_VARIABLE])))
    ImportHooks({module: _bind(hook, session) for module, hook in HOOKS.items()}).install()
    end_at_exit(session)


def _bind(hook: Hook, session: Session) -> AfterImport:
    def after_import(module: ModuleType) -> None:
        try:
            hook(module, session)
        except Exception as error:  # noqa: BLE001 - the script goes on
            session.fail(error)

    return after_import
