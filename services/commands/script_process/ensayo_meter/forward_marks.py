"""Marks of forward passes, which PyTorch reports to hooks for all modules."""

from types import ModuleType
from typing import Any

from .session import Session


class ForwardMarks:
    """Hooks for the forward passes of all modules, which are installed only while the step tracker needs them.

    They make each call of a module slower, so they are removed when the forward pass of a step begins.
    """

    def __init__(self, module: ModuleType, session: Session) -> None:
        """Create the marks; `module` is `torch.nn.modules.module`."""
        self._module, self._session = module, session
        self._handles: list[Any] = []

    def install(self) -> None:
        """Install the hooks, unless they are."""
        if not self._handles:
            self._handles.append(self._module.register_module_forward_pre_hook(self._begin_forward))
            self._handles.append(self._module.register_module_forward_hook(self._end_forward, always_call=True))

    def _begin_forward(self, *_: Any) -> None:
        has_gradient = self._module.torch.is_grad_enabled()
        self._session.guard(lambda tracker: tracker.begin_forward(has_gradient=has_gradient))
        self._remove_unneeded()

    def _end_forward(self, *_: Any) -> None:
        self._session.guard(lambda tracker: tracker.end_forward())
        self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        if not self._session.watches_forward_passes:
            while self._handles:
                self._handles.pop().remove()
