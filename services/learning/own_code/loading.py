"""Import of the user's classes and functions, and calls of them.

The folder of the user's file is appended to the end of `sys.path`, so that the file can import its neighbours, and so
that these cannot replace installed packages.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from services.learning.own_code.error_text import (
    OwnCodeError,
    describe_error,
    describe_place,
    explain_own_errors,
    place_of_error,
)
from services.learning.own_code.user_code import UserCode

_folders: set[str] = set()  # of users' code, from which this process has imported modules


@cache
def load_user_object(code: UserCode, key: str = "module") -> Any:
    """Return the user's class or function; import its file unless it was imported before.

    Args:
        code: reference to the class or function.
        key: key of the model that names it, for errors.

    Raises:
        OwnCodeError: the file is missing, can't be imported, or does not define the name.
    """
    module = _import_file(code, key)
    if hasattr(module, code.name):
        return getattr(module, code.name)
    own_names = sorted(_names_defined_in(module))
    similar = get_close_matches(code.name, own_names, n=1)
    defined = f"it defines {', '.join(own_names)}" if own_names else "it defines no class and no function"
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise OwnCodeError((key,), f"{describe_place(code)}: there is no {code.name} in this file; {defined}{hint}")


def describe_definition(code: UserCode, key: str = "module") -> str:
    """Return the user's file and line at which a class or function is defined.

    Raises:
        OwnCodeError: as for `load_user_object`.
    """
    found = load_user_object(code, key)
    try:
        return describe_place(code, Path(inspect.getfile(found)), inspect.getsourcelines(found)[1])
    except (OSError, TypeError):  # the name was not defined by a class or def statement
        return describe_place(code)


def make_error(code: UserCode, message: str, key: str = "module") -> OwnCodeError:
    """Return the error for wrong results of the user's class or function, which `key` of the model names."""
    return OwnCodeError((key,), f"{describe_definition(code, key)}: {code.name}: {message}")


def call_user_object(code: UserCode, *positional: Any, **named: Any) -> Any:
    """Call the user's class or function, and return the result.

    Raises:
        OwnCodeError: the file can't be imported, or the class or function has other parameters or raises an error.
    """
    found = load_user_object(code)
    if not callable(found):
        raise OwnCodeError(("module",), f"{describe_place(code)}: {code.name} is neither a class nor a function")
    try:
        inspect.signature(found).bind(*positional, **named)
    except TypeError as error:
        parameters = "__init__" if inspect.isclass(found) else "the function"
        message = (
            f"{describe_definition(code)}: {code.name}{inspect.signature(found)} can't be called with these arguments: "
            f"{error}; correct arguments, or the parameters of {parameters}"
        )
        raise OwnCodeError(("arguments",), message) from error
    with explain_own_errors(code, code.name):
        return found(*positional, **named)


@contextmanager
def use_code_folder(code: UserCode) -> Iterator[None]:
    """Let the user's code import files of its folder while it runs, and afterwards code of the folder before."""
    former_folders = [*_folders]
    if code.folder is not None:
        _forget_other_folders(code.folder)
    try:
        yield
    finally:
        for folder in former_folders:
            _forget_other_folders(folder)


def _import_file(code: UserCode, key: str) -> ModuleType:
    """Return the module of the user's file."""
    if code.folder is None or code.sha256 is None:
        raise OwnCodeError((key,), f"{code.file}: the code is unknown; load the scenario with load_scenario")
    path = Path(code.folder, code.file_name)
    module_name = f"own_code_{sha256(f'{code.sha256} {path}'.encode()).hexdigest()[:16]}_{path.stem}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    if not path.is_file():
        message = f"{describe_place(code)}: the copy of the code in {code.folder} is missing; load the scenario again"
        raise OwnCodeError((key,), message)
    _forget_other_folders(code.folder)
    spec = spec_from_file_location(module_name, path)
    assert spec is not None  # noqa: S101 - the name of the file ends in .py
    assert spec.loader is not None  # noqa: S101 - same
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # before the import, for example for dataclasses
    try:
        with redirect_stdout(sys.stderr):  # the standard output of nodes has only their logs
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script of the user may end with sys.exit()
        del sys.modules[module_name]
        raise OwnCodeError((key,), _explain_import_error(code, error)) from error
    return module


def _forget_other_folders(folder: str) -> None:
    """Make `folder` the only folder of users' code: modules of other folders may have the same names."""
    for other in _folders - {folder}:
        if other in sys.path:
            sys.path.remove(other)
        for name in [*_modules_in(other)]:
            del sys.modules[name]
    _folders.clear()
    _folders.add(folder)
    if folder not in sys.path:
        sys.path.append(folder)


def _modules_in(folder: str) -> Iterator[str]:
    """Yield the names of the imported modules whose files are in a folder."""
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            yield name


def _names_defined_in(module: ModuleType) -> Iterator[str]:
    """Yield the names of the classes and functions that a module itself defines."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) == module.__name__ and callable(value):
            yield name


def _explain_import_error(code: UserCode, error: BaseException) -> str:
    """Return the message for an error during the import, with a remedy."""
    message = f"{place_of_error(code, error)}: {describe_error(error)}"
    if isinstance(error, ModuleNotFoundError):
        return (
            f"{message}; install the package where Ensayo runs (containers have only those of the node image), or put "
            f"{error.name}.py into the folder {describe_place(code, Path(code.folder or ''))}"
        )
    if isinstance(error, ImportError) and error.name is None and "relative import" in str(error):
        return f"{message}; import files of the folder by their names, without a dot"
    if isinstance(error, ImportError):
        return f"{message}; an installed package takes precedence over a file of the same name in the folder"
    return f"{message}; the file must be importable without arguments; correct it"
