"""Functions that run after a module was imported for the first time."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

AfterImport: TypeAlias = Callable[[ModuleType], None]


class HookedLoader(Loader):
    """Loader that executes a module with the module's own loader, and then calls a function."""

    def __init__(self, loader: Loader, after_import: AfterImport) -> None:
        self._loader, self._after_import = loader, after_import

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._after_import(module)

    def __getattr__(self, name: str) -> Any:  # e.g. get_source, for tracebacks and inspect
        return getattr(self._loader, name)


class ImportHooks(MetaPathFinder):
    """Finder of the modules that have a function to call after their import."""

    def __init__(self, functions: dict[str, AfterImport]) -> None:
        self._functions = functions

    def install(self) -> None:
        """Ask this finder before all others."""
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, _: Sequence[str] | None, __: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in self._functions:
            return None
        after_import = self._functions.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = HookedLoader(spec.loader, after_import)
        return spec
