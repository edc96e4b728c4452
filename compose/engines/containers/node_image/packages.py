"""Python packages of the node image: requirements, versions and wheels."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from platform import machine
from typing import Literal, TypeAlias

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compose.engines.containers.node_image.pinned_wheels import are_wheels_as_pinned, write_pins
from compose.runs.host_program import run_host_program
from compose.runs.python_program import python_command
from services.plan import Plan
from services.schema.errors import HostError

ImageDevice: TypeAlias = Literal["cpu", "cuda"]

# Dependencies of Ensayo that a node needs; all others are only for the host. pyproject.toml states their versions.
NODE_PACKAGES: Mapping[ImageDevice, tuple[str, ...]] = {
    "cpu": ("cryptography", "grpcio", "grpcio-health-checking", "numpy", "protobuf", "pydantic"),
    "cuda": ("cupy-cuda12x",),
}
# device -> the sets of NODE_PACKAGES in its image
IMAGE_PARTS: Mapping[ImageDevice, tuple[ImageDevice, ...]] = {"cpu": ("cpu",), "cuda": ("cpu", "cuda")}
IMAGE_PYTHON = "3.11"


def check_host_pythons(plans: Iterable[Plan]) -> None:
    """Check that containers can import packages of the host: they have the same minor version of Python.

    Raises:
        HostError: they have another version.
    """
    host_pythons = sorted({plan.host_python for plan in plans if plan.host_python is not None} - {IMAGE_PYTHON})
    if host_pythons:
        raise HostError(
            f"containers import packages of this host's Python {host_pythons[0]}, but the node image has Python "
            f"{IMAGE_PYTHON}; install them with Python {IMAGE_PYTHON}, or use engine local"
        )


NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR = 36, 17  # Debian 12 has glibc 2.36; wheels for an older glibc run there, too


def node_requirements(part: ImageDevice) -> list[Requirement]:
    """Return the requirements of one part of a node image, as Ensayo's package metadata states them."""
    requirements = [Requirement(text) for text in requires("ensayo") or ()]
    selected = [requirement for requirement in requirements if requirement.name in NODE_PACKAGES[part]]
    for requirement in selected:
        requirement.marker = None  # such as `extra == "gpu"`, which pip would not install
    return selected


def installed_versions(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Return the versions of required packages on this host, and of the packages that these require.

    Packages that are not installed are left out.
    """
    versions: dict[str, str] = {}
    pending = list(requirements)
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name in versions:
            continue
        with suppress(PackageNotFoundError):
            package = distribution(name)
            versions[name] = package.version
            required = (Requirement(text) for text in package.requires or ())
            pending += [each for each in required if _applies(each, requirement.extras)]
    return dict(sorted(versions.items()))


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Return whether a package with these extras has a requirement on this host."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def fetch_wheels(part: ImageDevice, cache_folder: Path, report: Callable[[str], None]) -> Path:
    """Return the folder with the wheels of one part of a node image; download them unless they are there.

    The cache folder keeps only the wheels of the last download for each part.

    Args:
        part: part of the image, a key of NODE_PACKAGES.
        cache_folder: folder that contains the folders of wheels.
        report: is called with a message before a download.

    Raises:
        HostError: pip could not download the wheels.
    """
    node_packages = node_requirements(part)
    # CuPy requires NumPy: an image contains one version, that of the part `cpu`.
    constrained = [requirement for name in IMAGE_PARTS[part] for requirement in node_requirements(name)]
    constraints = "".join(f"{name}=={version}\n" for name, version in installed_versions(constrained).items())
    requirements = [*map(str, node_packages), *["pip"] * (part == "cpu")]  # pip installs the wheels
    key = sha256("\n".join([*requirements, constraints]).encode()).hexdigest()[:12]
    folder, partial = cache_folder / f"{part}-{key}", cache_folder / f"{part}-partial"
    if are_wheels_as_pinned(folder):
        return folder
    for old_folder in cache_folder.glob(f"{part}-*"):
        shutil.rmtree(old_folder)
    report(f"node image: downloading its Python packages ({', '.join(requirements)})")
    constraints_file = cache_folder / "constraints.txt"
    constraints_file.write_text(constraints, encoding="utf-8")
    if _download(requirements, partial, "--constraint", str(constraints_file)):
        report(f"node image: no wheels of this host's versions for Python {IMAGE_PYTHON}; downloading the newest ones")
        if error := _download(requirements, partial):
            raise HostError(
                "the Python packages of the node image could not be downloaded; connect this host to PyPI, or name "
                f"another index in PIP_INDEX_URL; pip printed:\n{error}"
            )
    write_pins(partial)
    return partial.rename(folder)  # last: an interrupted download is begun again


def _download(requirements: Iterable[str], folder: Path, *options: str) -> str:
    """Download the wheels of packages and of what they require for the node image; return pip's error messages."""
    glibc_minors = range(NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR - 1, -1)
    # pip takes the first platform with a wheel, as it does on the host.
    platforms = [*(f"manylinux_2_{minor}_{machine()}" for minor in glibc_minors), f"manylinux2014_{machine()}"]
    target = [f"--python-version={IMAGE_PYTHON}", "--implementation=cp", *(f"--platform={name}" for name in platforms)]
    command = [*python_command("pip"), "download", "--quiet", "--only-binary=:all:", *target, f"--dest={folder}"]
    pip = run_host_program([*command, *options, *requirements])
    return (pip.stderr.strip() or f"exit code {pip.returncode}") if pip.returncode else ""
