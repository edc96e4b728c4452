"""Packages that only some file formats need; the extra `data` of pyproject.toml lists them."""

from importlib import import_module
from typing import Any

from services.learning.datasets.files import DataFileError


def import_optional(key: str, module_name: str, package: str) -> Any:
    """Return a module of an optional package.

    Raises:
        DataFileError: the package is not installed; the message names the package.
    """
    try:
        return import_module(module_name)
    except ImportError as error:
        message = f"this file format needs the package {package}: pip install {package}"
        raise DataFileError(key, message) from error
