"""What tests ask for by name."""

import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

from compose.engines.docker import DockerEngine
from services.clock import VirtualLoop
from services.device import Device, Want, select
from services.errors import HostError

settings.register_profile("any host", deadline=None)  # a busy host is slow, not wrong
settings.load_profile("any host")

InVirtualTime: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Every device that this host has; the same test body runs on each."""
    want: Want = request.param
    try:
        return select(want)
    except HostError as absent:
        pytest.skip(str(absent))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Expected texts are files beside their inputs; this writes them anew, for review."""
    parser.addoption("--rewrite", action="store_true", help="write expected texts anew")


@pytest.fixture(scope="session")
def in_virtual_time() -> InVirtualTime:
    """Runs a coroutine in a virtual loop of its own; what it returns."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        loop = VirtualLoop()
        try:
            return loop.run_until_complete(main)
        finally:
            loop.close()

    return run


@pytest.fixture(scope="session")
def docker_engine() -> DockerEngine:
    """The engine that runs containers, its image built; where a run of the tests must not go without, absence fails."""
    engine = DockerEngine()
    if missing := engine.missing():
        (pytest.fail if os.environ.get("ENSAYO_REQUIRE_DOCKER") == "1" else pytest.skip)(missing)
    engine.prepare(Silent())
    return engine


class Silent:
    """Looks on and says nothing."""

    def preparing(self, what: str) -> None:
        """An engine builds."""
