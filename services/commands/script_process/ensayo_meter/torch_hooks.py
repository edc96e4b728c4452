"""Marks of forward passes, backward passes and updates, set by PyTorch's own hooks where it has them."""

import functools
from types import ModuleType
from typing import Any

from .forward_marks import ForwardMarks
from .session import Session


def mark_forward_passes(module: ModuleType, session: Session) -> None:
    """Mark the forward passes before the first step and between steps. `module` is `torch.nn.modules.module`."""
    marks = ForwardMarks(module, session)
    marks.install()
    session.install_forward_marks = marks.install


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
        if session.watches_forward_passes:
            session.install_forward_marks()

    module.register_optimizer_step_pre_hook(begin_update)
    module.register_optimizer_step_post_hook(end_update)
