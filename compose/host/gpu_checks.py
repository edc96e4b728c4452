"""Checks of `ensayo doctor` for GPUs: which there are, whether CuPy computes on them, and whether containers can."""

from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import packages_distributions, version

import docker
from docker.errors import DockerException

from compose.engines.containers.node_image.build import IMAGE_TAGS
from compose.host.host_check_result import HostCheckResult
from compose.host.kernel_features import read_command_output
from services.runtime.device import find_gpu
from services.schema.errors import HostError


def check_gpus() -> Iterator[HostCheckResult]:
    """Check which GPUs there are, and, if there are any, whether processes and containers can use them."""
    listed = read_command_output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    gpus = listed.splitlines() if listed else []
    if not gpus:
        found = f"nvidia-smi lists no GPU; {_describe_installed_cupy()}"
        costs = "device: cuda is not available; paced workers on the CPU emulate the speed of any accelerator"
        remedy = "install an NVIDIA driver, CuPy and, for containers, the NVIDIA container toolkit"
        yield HostCheckResult("gpu", found, ok=False, costs=costs, remedy=remedy)
        return
    unused = f"; workers use only the first of {len(gpus)}" if len(gpus) > 1 else ""
    yield HostCheckResult("gpu", f"{gpus[0]}{unused}")
    yield check_cupy()
    yield check_gpus_in_containers()


def check_cupy() -> HostCheckResult:
    """Check whether CuPy computes on a GPU in this Python environment, which processes of the engine `local` use."""
    try:
        gpu = find_gpu()
    except HostError as error:
        costs = "processes can't use the GPU (engines local and simulated)"
        reason, _, remedy = str(error).rpartition("; ")
        return HostCheckResult("cupy", f"{_describe_installed_cupy()}: {reason}", ok=False, costs=costs, remedy=remedy)
    return HostCheckResult("cupy", f"CuPy {gpu.cupy_version} computes on {gpu.model}")


def check_gpus_in_containers() -> HostCheckResult:
    """Check whether Docker has the runtime of the NVIDIA container toolkit, and the node image with CuPy."""
    try:
        with closing(docker.from_env(timeout=5)) as client:
            has_toolkit = "nvidia" in client.info().get("Runtimes", {})
            has_image = bool(client.images.list(IMAGE_TAGS["cuda"]))
    except DockerException:
        has_toolkit = has_image = False
    found = f"runtime nvidia of Docker: {_yes_or_no(has_toolkit)}; node image with CuPy: {_yes_or_no(has_image)}"
    if has_toolkit and has_image:
        return HostCheckResult("gpu-image", found)
    if has_toolkit:
        costs = "containers with device: auto use the CPU; device: cuda builds the image at the first run"
        return HostCheckResult("gpu-image", found, ok=False, costs=costs, remedy="run `ensayo images --cuda`")
    costs, remedy = "containers can't use the GPU; --engine local can", "install the NVIDIA container toolkit"
    return HostCheckResult("gpu-image", found, ok=False, costs=costs, remedy=remedy)


def _describe_installed_cupy() -> str:
    packages = packages_distributions().get("cupy", ())
    return f"{packages[0]} {version(packages[0])} is installed" if packages else "CuPy is not installed"


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"
