"""Classes of layers, for tests that must cover all of them."""

import importlib
import inspect
import pkgutil

import services.learning.layers
from services.learning.layers.base import Layer


def find_layer_classes() -> set[type[Layer]]:
    """Return all classes of layers that can be created."""
    modules = pkgutil.walk_packages(services.learning.layers.__path__, "services.learning.layers.")
    members = [inspect.getmembers(importlib.import_module(module.name), inspect.isclass) for module in modules]
    classes = [cls for of_module in members for _, cls in of_module]
    return {cls for cls in classes if issubclass(cls, Layer) and not inspect.isabstract(cls)}
