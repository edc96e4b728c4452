"""Source text of classes and functions that are defined in notebook cells, or in the script that is running.

The text has the definition, and all that it needs: imports, constants, and other definitions of the notebook.
"""

import ast
import builtins
import linecache
import sys
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, isfunction, unwrap
from pathlib import Path
from symtable import SymbolTable, symtable
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from services.schema.errors import UserError

Definition: TypeAlias = type | FunctionType
CONSTANT_TYPES = (bool, int, float, complex, str, bytes, tuple, list, dict, set, type(None))
ENSAYO_FOLDER = Path(__file__).resolve().parents[2] / "services"  # which every node has
PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
REMEDY = "put the definition into a .py file, and pass it from there"


def collect_source(definition: Definition) -> str:
    """Return a module's text with a class or function, and with everything of the notebook that it uses.

    Raises:
        UserError: the source is not known, or the definition uses a value that can't be written to a file.
    """
    collected = _CollectedSource()
    collected.add_definition(definition)
    return "\n".join([*collected.imports, "", *collected.constants, "", "\n\n\n".join(collected.definitions), ""])


def import_line(name: str, value: Any) -> str | None:
    """Return the line that imports a module, class or function as `name`; None if it can't be imported."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module_name, attribute = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module_name, str) or not isinstance(attribute, str) or module_name == "__main__":
        return None
    try:
        found = getattr(import_module(module_name), attribute, None)
    except ImportError:
        return None
    return f"from {module_name} import {attribute} as {name}" if found is value else None


def is_installed(module_name: str) -> bool:
    """Return whether a module is part of Python or of an installed package, so that nodes can import it."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if module_name == "__main__" or file is None:
        return (
            module_name != "__main__"
        )  # other modules without a file are built into Python, or namespaces of packages
    folders = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    path = Path(file).resolve()
    is_in_packages = bool(PACKAGE_FOLDERS & set(path.parts))
    return (
        is_in_packages
        or path.suffix != ".py"
        or any(path.is_relative_to(folder) for folder in (*folders, ENSAYO_FOLDER))
    )


class _CollectedSource:
    """Imports, constants and definitions, each in the order in which they are needed."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.constants: dict[str, None] = {}
        self.definitions: list[str] = []
        self._values: dict[str, Any] = {}  # name -> value; names are those of one module

    def add_definition(self, definition: Definition) -> None:
        """Add a class or function, after everything that it uses."""
        if not self._is_new(definition.__name__, definition):
            return
        source = _find_source(definition)
        namespace = vars(sys.modules[definition.__module__])
        for name in sorted(_global_names(source) - {definition.__name__}):
            if name in namespace:
                self._add_value(definition, name, namespace[name])
            elif not hasattr(builtins, name) and not name.startswith("__"):
                raise UserError(f"{definition.__name__} uses {name}, which is not defined; define it, or import it")
        self.definitions.append(source)

    def _add_value(self, user: Definition, name: str, value: Any) -> None:
        """Add what a definition calls `name`."""
        module_name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        is_of_user = isinstance(module_name, str) and not is_installed(module_name)
        if is_of_user and isinstance(value, type | FunctionType):
            self.add_definition(value)
            if value.__name__ != name and self._is_new(name, value):
                self.definitions.append(f"{name} = {value.__name__}")
        elif is_of_user and isinstance(value, ModuleType):
            raise UserError(
                f"{user.__name__} uses {name}, a module of {value.__file__}, which nodes do not have; import the "
                f"functions that {user.__name__} needs from {module_name}, or put {user.__name__} into a .py file "
                "beside it, and pass it from there"
            )
        elif not self._is_new(name, value):
            return
        elif line := import_line(name, value):
            self.imports[line] = None
        elif _is_constant(value):
            self.constants[f"{name} = {value!r}"] = None
        else:
            raise UserError(
                f"{user.__name__} uses {name}, an object of {type(value).__name__}, which can't be written to a file; "
                f"pass it as an argument, create it in {user.__name__}, or {REMEDY}"
            )

    def _is_new(self, name: str, value: Any) -> bool:
        """Return whether a name has not been added; record it.

        Raises:
            UserError: the name has another value in another file.
        """
        if name not in self._values:
            self._values[name] = value
            return True
        if self._values[name] is not value and self._values[name] != value:
            raise UserError(f"{name} has two meanings, in several files; rename one of both")
        return False


def _is_constant(value: Any) -> bool:
    """Return whether the representation of a value is Python code for the same value."""
    if not isinstance(value, CONSTANT_TYPES):
        return False
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _global_names(source: str) -> set[str]:
    """Return the names that a definition takes from the module around it."""
    module = symtable(source, "cell", "exec")
    outer = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_referenced()}
    return outer | {name for child in module.get_children() for name in _global_names_of_scope(child)}


def _global_names_of_scope(scope: SymbolTable) -> Iterator[str]:
    yield from (symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global() and symbol.is_referenced())
    for child in scope.get_children():
        yield from _global_names_of_scope(child)


def _find_source(definition: Definition) -> str:
    """Return the text of a class or function statement, with its decorators.

    `inspect.getsource` does not find classes in notebooks before Python 3.13; their methods know the cell.
    """
    if "<" in definition.__qualname__ or "." in definition.__qualname__:
        raise UserError(
            f"{definition.__qualname__} is not defined at the top level of a cell or file; define it there, with a name"
        )
    code = _any_code(definition)
    if code is not None:
        text = "".join(linecache.getlines(code.co_filename))
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == definition.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or first):
                    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    reason = "it has no method" if isclass(definition) and code is None else "it was not typed into a cell or file"
    raise UserError(f"the source of {definition.__name__} is not known, because {reason}; {REMEDY}")


def _any_code(definition: Definition) -> CodeType | None:
    """Return the compiled code of a function, or of a method of a class."""
    if isfunction(definition):
        code: CodeType = unwrap(definition).__code__
        return code
    for value in vars(definition).values():
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        if isfunction(function) and function.__module__ == definition.__module__:
            return function.__code__
    return None
