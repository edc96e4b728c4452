"""What the node image is built from."""

import ast
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compose.engines.containers.node_image import build
from compose.engines.containers.node_image.build import SERVICES_FOLDER, _hash_image_sources
from compose.engines.containers.node_image.packages import (
    NODE_PACKAGES,
    ImageDevice,
    installed_versions,
    node_requirements,
)


def imported_modules() -> set[str]:
    """Return the top-level modules that the nodes' code imports, without the standard library."""
    names = set()
    for path in SERVICES_FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"services"}


def test_nodes_have_every_package_that_their_code_imports() -> None:
    """A node whose image lacks a package ends with an ImportError, which only a test in containers would show."""
    packages = installed_versions(node_requirements("cpu"))
    distributions = packages_distributions()

    for module in imported_modules() - {"cupy"}:
        assert packages.keys() & {canonicalize_name(name) for name in distributions[module]}, module


@pytest.mark.parametrize("part", NODE_PACKAGES)
def test_every_package_of_a_node_is_a_dependency_of_ensayo(part: ImageDevice) -> None:
    """A misspelt name would be missing in the image without an error; pyproject.toml states the versions."""
    requirements = node_requirements(part)

    assert sorted(requirement.name for requirement in requirements) == sorted(NODE_PACKAGES[part])
    assert all(requirement.specifier and requirement.marker is None for requirement in requirements)


def test_versions_follow_requirements_that_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's CUDA libraries are an extra; a package of the host, such as a test tool, must not change the image."""
    required_by_package = {
        "node-alpha": ['node-beta; extra == "fast"', 'node-gamma; extra == "slow"', "node_delta", "node-absent"],
        "node-beta": ["node-alpha", 'node-gamma; python_version < "3"'],
        "node-gamma": [],
        "node-delta": [],
    }
    for name, required in required_by_package.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {name}",
            "Version: 1.0",
            *(f"Requires-Dist: {each}" for each in required),
        ]
        (folder / "METADATA").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)

    versions = installed_versions([Requirement("node-alpha[fast]")])

    assert versions == {"node-alpha": "1.0", "node-beta": "1.0", "node-delta": "1.0"}


def test_hash_depends_on_versions_and_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run must never use an image with other packages than the host's, or on another base."""
    hashes = {_hash_image_sources("cpu")}
    monkeypatch.setenv("ENSAYO_BASE_IMAGE", "mine")
    hashes.add(_hash_image_sources("cpu"))
    monkeypatch.setattr(build, "installed_versions", lambda _: {"numpy": "1.0"})
    hashes.add(_hash_image_sources("cpu"))

    assert len(hashes) == 3
