"""Marks of forward passes, backward passes and updates, set by PyTorch's own hooks where it has them."""

import functools
from types import ModuleType
from typing import Any

from .session import Session


def mark_forward_passes(module: ModuleType, session: Session) -> None:
    """Mark the forward passes before the first step. `module` is `torch.nn.modules.module`."""
    handles: list[Any] = []

    def begin_forward(*_: Any) -> None:
        session.guard(lambda tracker: tracker.begin_forward())

    def end_forward(*_: Any) -> None:
        session.guard(lambda tracker: tracker.end_forward())
        if session.has_first_step_begun:
            while handles:
                handles.pop().remove()

    handles.append(module.register_module_forward_pre_hook(begin_forward))
    handles.append(module.register_module_forward_hook(end_forward, always_call=True))


def mark_backward_passes(module: ModuleType, session: Session) -> None:
    """Mark the calls of `backward`, which PyTorch has no hook for. `module` is `torch.autograd`."""
    backward = module.backward

    @functools.wraps(backward)
    def marked_backward(*arguments: Any, **named: Any) -> Any:
        session.start()
        session.guard(lambda tracker: tracker.begin_backward())
        try:
            return backward(*arguments, **named)
        finally:
            session.guard(lambda tracker: tracker.end_backward())

    module.backward = marked_backward  # type: ignore[attr-defined]


def mark_updates(module: ModuleType, session: Session) -> None:
    """Mark the updates of all optimisers. `module` is `torch.optim.optimizer`."""

    def begin_update(optimiser: Any, *_: Any) -> None:
        session.start()
        session.note_optimiser(optimiser)
        session.guard(lambda tracker: tracker.begin_update(id(optimiser)))

    def end_update(optimiser: Any, *_: Any) -> None:
        session.guard(lambda tracker: tracker.end_update(id(optimiser)))

    module.register_optimizer_step_pre_hook(begin_update)
    module.register_optimizer_step_post_hook(end_update)
