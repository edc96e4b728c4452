"""Build of the node image from the package `services` of this installation, the wheels of its dependencies and a base.

A checkout and an installed wheel of Ensayo build the same image. The build needs no network once the wheels and the
base image are on this host, and the base image contains `tc` and `iptables`.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import services
from compose.engines.containers.node_image.packages import (
    IMAGE_PARTS,
    IMAGE_PYTHON,
    ImageDevice,
    fetch_wheels,
    installed_versions,
    node_requirements,
)
from compose.host.folder_lock import lock_folder
from compose.host.host_facts import user_cache_folder
from compose.runs.git_commit import git_commit_of_checkout
from compose.runs.host_program import run_host_program
from services.schema.errors import HostError

# Device -> tag of the newest image.
IMAGE_TAGS: Mapping[str, str] = {"cpu": "ensayo-node:cpu", "cuda": "ensayo-node:cuda"}
BASE_IMAGE_VARIABLE = "ENSAYO_BASE_IMAGE"
DEBIAN_BASE_IMAGE = "ensayo-base:debian-12-iptables"
NEEDS_OF_IMAGES = f"which needs Debian, Python {IMAGE_PYTHON} with the module venv, and libstdc++6"
REGISTRY_TIMEOUT_S = 10.0  # without internet access, the registry does not reply
SOURCES_FOLDER = Path(__file__).with_name("sources")  # images/ of the repository
DOCKERFILE, DEBIAN_BASE_SCRIPT = SOURCES_FOLDER / "Dockerfile", SOURCES_FOLDER / "debian-base"
SERVICES_FOLDER = Path(services.__path__[0])


def build_node_image(device: ImageDevice, report: Callable[[str], None]) -> str:
    """Build the node image for a device, unless it exists, and return the image's tag.

    The tag contains the hash of the image's sources. The other tag, such as `ensayo-node:cpu`, may be moved by a build
    from another installation.

    Args:
        device: device of the nodes; `cuda` adds CuPy.
        report: is called with a message before each part of the build that takes long.

    Raises:
        HostError: the image can't be built on this host.
    """
    tag = f"ensayo-node:{_hash_image_sources(device)}"
    if _tag_as_newest(tag, device):
        return tag
    with lock_folder(user_cache_folder() / "node-image", "node image", report) as cache_folder:
        if not _tag_as_newest(tag, device):  # another process may have built it meanwhile
            wheels_by_part = {part: fetch_wheels(part, cache_folder, report) for part in IMAGE_PARTS[device]}
            base_image, reason = _choose_base_image(report)
            report(f"node image: building it on {base_image} ({reason})")
            context = _make_build_context(cache_folder / "context", wheels_by_part)
            _build_image(
                device, (tag, IMAGE_TAGS[device]), {"BASE": base_image}, context, f"the {device} image of nodes"
            )
    return tag


def build_command_image(user_image_id: str, report: Callable[[str], None]) -> str:
    """Build the node image on an image of the user, unless it exists, and return the image's tag.

    Nodes of this image run Ensayo's own processes from /opt/ensayo, and commands with the Python of the user.

    Args:
        user_image_id: id of an image with Python IMAGE_PYTHON on the Docker engine.
        report: is called with a message before each part of the build that takes long.

    Raises:
        HostError: the image is not on the engine any more, or can't be built.
    """
    digest = sha256(f"{_hash_image_sources('cpu')} {user_image_id}".encode()).hexdigest()[:12]
    tag, base_image = f"ensayo-command:{digest}", f"ensayo-command-base:{digest}"
    if _has_image(tag):
        return tag
    with lock_folder(user_cache_folder() / "node-image", "node image", report) as cache_folder:
        if _has_image(tag):
            return tag
        wheels_by_part = {part: fetch_wheels(part, cache_folder, report) for part in IMAGE_PARTS["cpu"]}
        if _run_docker("tag", user_image_id, base_image).returncode:  # builds can't begin from an id on every engine
            raise HostError(f"{user_image_id}: this image is not on the Docker engine any more; build it again")
        report("node image: building it on the image of the command")
        arguments = {"BASE": base_image, "SHAPES_LINKS": "no"}
        context = _make_build_context(cache_folder / "context", wheels_by_part)
        _build_image("cpu", (tag,), arguments, context, f"the node image on workload.image ({NEEDS_OF_IMAGES})")
    return tag


def _has_image(tag: str) -> bool:
    return _run_docker("image", "inspect", tag).returncode == 0


def _tag_as_newest(tag: str, device: ImageDevice) -> bool:
    """Give an image the tag of the newest image for a device; return False if there is no such image."""
    return _run_docker("tag", tag, IMAGE_TAGS[device]).returncode == 0


def _build_image(
    device: ImageDevice, tags: Iterable[str], arguments: Mapping[str, str], context: Path, description: str
) -> None:
    """Build the target for a device from a build context, which is removed, and give the image its tags.

    Raises:
        HostError: the build has failed; the message begins with `description`.
    """
    facts = {"VERSION": version("ensayo"), "REVISION": git_commit_of_checkout().get("id", "unknown")}
    options = [f"--build-arg={name}={value}" for name, value in {**arguments, **facts}.items()]
    options += [f"--tag={tag}" for tag in tags]
    build = _run_docker("build", f"--target={device}", *options, str(context))
    shutil.rmtree(context)
    if build.returncode:
        printed = f"{build.stdout}{build.stderr}".strip()
        raise HostError(f"{description} could not be built; `docker build` printed:\n{printed}")


def _make_build_context(context: Path, wheels_by_part: Mapping[ImageDevice, Path]) -> Path:
    """Fill the folder that `docker build` reads; remove what a killed build has left there."""
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(SERVICES_FOLDER, context / "services", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DOCKERFILE, context)
    for part, folder in wheels_by_part.items():
        shutil.copytree(folder, context / "wheels" / part, copy_function=os.link)  # `cuda` has gigabytes
    return context


def _hash_image_sources(device: ImageDevice) -> str:
    """Return the hash of everything that determines the content of the node image for a device."""
    requirements = [requirement for part in IMAGE_PARTS[device] for requirement in node_requirements(part)]
    versions = installed_versions(requirements)
    settings = [device, os.environ.get(BASE_IMAGE_VARIABLE), [*map(str, requirements)], versions]
    digest = sha256(json.dumps(settings).encode())
    files = sorted(path for path in SERVICES_FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in (DOCKERFILE, *files):
        name = os.path.relpath(path, SERVICES_FOLDER.parent)  # the same in every installation
        digest.update(f"\n{name} {sha256(path.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()[:12]


def _choose_base_image(report: Callable[[str], None]) -> tuple[str, str]:
    """Return the first base image that this host can get, and the reason; pull or build the image if necessary.

    Raises:
        HostError: no base image can be pulled or built.
    """
    if named_image := os.environ.get(BASE_IMAGE_VARIABLE):
        return named_image, f"named by {BASE_IMAGE_VARIABLE}"
    python_image = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)[0]
    for image in (python_image, DEBIAN_BASE_IMAGE):
        if _run_docker("image", "inspect", image).returncode == 0:
            return image, "already on this host"
    report(f"node image: pulling {python_image}")
    if _is_in_registry(python_image) and _run_docker("pull", "--quiet", python_image).returncode == 0:
        return python_image, "pulled"
    report(f"node image: {python_image} can't be pulled; building a base image from Debian's archive")
    script = run_host_program(["bash", DEBIAN_BASE_SCRIPT, DEBIAN_BASE_IMAGE])
    if script.returncode:
        raise HostError(
            f"the node image needs a base image, but {python_image} can't be pulled, and none can be built from "
            f"Debian's archive; set {BASE_IMAGE_VARIABLE} to an image with Python 3.11, or fix this error:\n"
            f"{script.stderr}"
        )
    return DEBIAN_BASE_IMAGE, f"{python_image} can't be pulled"


def _is_in_registry(image: str) -> bool:
    try:
        return _run_docker("manifest", "inspect", image, timeout_s=REGISTRY_TIMEOUT_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _run_docker(*arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return run_host_program(["docker", *arguments], timeout_s)
