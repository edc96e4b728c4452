"""What the doctor reports about GPUs: GPUs, CuPy, containers, and for each missing part its cost and remedy."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_cupy import make_fake_cupy

from compose.host import gpu_checks
from compose.host.host_check_result import HostCheckResult

A100 = "NVIDIA A100-SXM4-80GB, 81920 MiB, 550.54"
IMAGES, NO_IMAGES = [SimpleNamespace(id="sha256:1")], list[Any]()


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, HostCheckResult]]:
    """Return a function that runs the checks on a host with these properties, and returns the results by topic."""

    def run(
        nvidia_smi: str | None, *, runtimes: tuple[str, ...] = ("runc",), images: list[Any] = NO_IMAGES
    ) -> dict[str, HostCheckResult]:
        client = SimpleNamespace(
            info=lambda: {"Runtimes": dict.fromkeys(runtimes)},
            images=SimpleNamespace(list=lambda _: images),
            close=lambda: None,
        )
        monkeypatch.setattr(gpu_checks, "read_command_output", lambda *_: nvidia_smi)
        monkeypatch.setattr(gpu_checks.docker, "from_env", lambda **_: client)
        return {result.topic: result for result in gpu_checks.check_gpus()}

    return run


def test_host_without_a_gpu_gets_one_line(check: Callable[..., dict[str, HostCheckResult]]) -> None:
    """Most hosts have none: what CuPy and containers lack does not matter there."""
    (finding,) = check(None).values()

    assert not finding.ok
    assert "nvidia-smi lists no GPU; " in finding.found
    assert "CuPy" in finding.remedy


def test_host_that_computes_on_its_gpu_misses_nothing(
    check: Callable[..., dict[str, HostCheckResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of CuPy is a computation on the GPU, since a driver may list a GPU that no program can use."""
    make_fake_cupy().install(monkeypatch)

    findings = check(A100, runtimes=("runc", "nvidia"), images=IMAGES)

    assert all(finding.ok for finding in findings.values())
    assert findings["gpu"].found == A100
    assert findings["cupy"].found == "CuPy 14.0.0 computes on Some GPU"


def test_gpu_without_cupy_names_the_extra(
    check: Callable[..., dict[str, HostCheckResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi alone does not show that a process can compute."""
    monkeypatch.setitem(sys.modules, "cupy", None)

    finding = check(A100)["cupy"]

    assert not finding.ok
    assert "pip install 'cupy-cuda12x[ctk]>=14.0'" in finding.remedy


@pytest.mark.parametrize(
    ("runtimes", "images", "remedy"),
    [
        (("runc",), IMAGES, "install the NVIDIA container toolkit"),
        (("runc", "nvidia"), NO_IMAGES, "run `ensayo images --cuda`"),
    ],
)
def test_missing_part_of_containers_is_named(
    check: Callable[..., dict[str, HostCheckResult]], runtimes: tuple[str, ...], images: list[Any], remedy: str
) -> None:
    """Containers with device auto use the CPU without a word if one of the two is missing."""
    finding = check(A100, runtimes=runtimes, images=images)["gpu-image"]

    assert (finding.ok, finding.remedy) == (False, remedy)


def test_further_gpus_are_reported_as_unused(check: Callable[..., dict[str, HostCheckResult]]) -> None:
    """All workers share the first GPU; a user may expect one GPU for each."""
    assert "workers use only the first of 2" in check(f"{A100}\n{A100}")["gpu"].found
