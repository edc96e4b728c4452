"""What the node image is built from."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compose.engines.containers.node_image import build, packages
from compose.engines.containers.node_image.build import SERVICES_FOLDER, _hash_image_sources
from compose.engines.containers.node_image.packages import (
    NODE_PACKAGES,
    ImageDevice,
    fetch_wheels,
    installed_versions,
    node_requirements,
)
from services.schema.errors import HostError


def imported_modules() -> set[str]:
    """Return the top-level modules that the nodes' code imports, without the standard library."""
    names = set()
    for path in SERVICES_FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module or "")
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"services"}


def test_nodes_have_every_package_that_their_code_imports() -> None:
    """A node whose image lacks a package ends with an ImportError, which only a test in containers would show."""
    installed = installed_versions(node_requirements("cpu"))
    distributions = packages_distributions()

    for module in imported_modules() - {"cupy", "torch"}:  # in the CUDA image, and from the packages of the host
        assert installed.keys() & {canonicalize_name(name) for name in distributions[module]}, module


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


class RecordedDownloads:
    """Replacement of pip: writes one file per download, or fails as the test decides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: str) -> None:
        self.options: list[tuple[str, ...]] = []  # one element per download
        self._errors = [*errors]
        monkeypatch.setattr(packages, "_download", self.download)

    def download(self, requirements: list[str], folder: Path, *options: str) -> str:
        """Record a download, and create its folder."""
        self.options.append(options)
        folder.mkdir(exist_ok=True)
        (folder / "numpy-1.0-py3-none-any.whl").touch()
        return self._errors.pop(0) if self._errors else ""


def test_wheels_are_downloaded_once_per_set_of_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited service must cost seconds, also without a network; old versions must not fill the disk."""
    downloads = RecordedDownloads(monkeypatch)

    first = fetch_wheels("cpu", tmp_path, print)
    assert fetch_wheels("cpu", tmp_path, print) == first
    monkeypatch.setattr(packages, "installed_versions", lambda _: {"numpy": "1.0"})
    second = fetch_wheels("cpu", tmp_path, print)

    assert len(downloads.options) == 2
    assert [*tmp_path.glob("cpu-*")] == [second]
    assert (second / "numpy-1.0-py3-none-any.whl").exists()


def test_cupy_comes_with_the_version_of_numpy_that_other_nodes_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy is not installed on most hosts; the newest NumPy that it allows would replace the host's version."""
    RecordedDownloads(monkeypatch)

    fetch_wheels("cuda", tmp_path, print)

    assert f"numpy=={version('numpy')}\n" in (tmp_path / "constraints.txt").read_text()


def test_kernels_are_stored_where_a_container_with_a_read_only_file_system_can_write() -> None:
    """By default, CuPy creates a folder in the home folder, and `import cupy` fails."""
    cuda_target = build.DOCKERFILE.read_text().partition("FROM cpu AS cuda")[2]

    assert "CUPY_CACHE_DIR=/tmp/" in cuda_target


def test_nodes_get_the_newest_versions_where_those_of_the_host_have_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host may have a newer Python than the image."""
    downloads = RecordedDownloads(monkeypatch, "no matching distribution")

    assert fetch_wheels("cpu", tmp_path, print).is_dir()
    assert [len(options) for options in downloads.options] == [2, 0]  # with constraints, then without


def test_failed_download_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-filled folder of wheels would give an image that lacks packages."""
    RecordedDownloads(monkeypatch, "no network", "no network")

    with pytest.raises(HostError, match=r"connect this host to PyPI.*\nno network"):
        fetch_wheels("cpu", tmp_path, print)
    assert fetch_wheels("cpu", tmp_path, print).is_dir()


@pytest.mark.parametrize(
    ("succeeding", "base_image"),
    [
        (("image inspect python", "image inspect ensayo-base"), "python:3.11-slim-bookworm"),
        (("image inspect ensayo-base", "manifest", "pull"), "ensayo-base:debian-12-iptables"),
        (("manifest", "pull"), "python:3.11-slim-bookworm"),
    ],
)
def test_base_image_is_the_first_that_this_host_can_get(
    succeeding: tuple[str, ...], base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local image needs no registry, and a registry no Debian archive."""

    def run_docker(*arguments: str, **_options: float) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(arguments, int(not " ".join(arguments).startswith(succeeding)))

    monkeypatch.setattr(build, "_run_docker", run_docker)
    monkeypatch.delenv("ENSAYO_BASE_IMAGE", raising=False)

    assert build._choose_base_image(print)[0] == base_image


def test_without_any_base_image_the_message_names_the_reason_and_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without a registry needs mmdebstrap, or an image that its user names."""
    script = tmp_path / "debian-base"
    script.write_text("echo mmdebstrap is missing >&2; exit 1")
    monkeypatch.setattr(build, "DEBIAN_BASE_SCRIPT", script)
    monkeypatch.setattr(build, "_run_docker", lambda *arguments, **_: subprocess.CompletedProcess(arguments, 1))
    monkeypatch.delenv("ENSAYO_BASE_IMAGE", raising=False)

    with pytest.raises(HostError, match=r"to an image with Python 3.11, or fix this error:\nmmdebstrap is missing"):
        build._choose_base_image(print)


def run_docker_with_result(monkeypatch: pytest.MonkeyPatch, return_code: int) -> None:
    """Replace every call of the program docker by a result."""
    monkeypatch.setattr(
        build, "_run_docker", lambda *arguments, **_: subprocess.CompletedProcess(arguments, return_code)
    )


def test_an_image_that_exists_needs_no_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home folder of a service or a container may be read-only."""
    run_docker_with_result(monkeypatch, 0)
    monkeypatch.setattr(build, "user_cache_folder", lambda: tmp_path / "cache")

    assert build.build_node_image("cpu", print).startswith("ensayo-node:")
    assert not (tmp_path / "cache").exists()


def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_docker_with_result(monkeypatch, 1)
    (tmp_path / "cache").touch()
    monkeypatch.setattr(build, "user_cache_folder", lambda: tmp_path / "cache")

    with pytest.raises(HostError, match=r"cache/node-image: .* can't be written: Not a directory; .*XDG_CACHE_HOME"):
        build.build_node_image("cpu", print)
