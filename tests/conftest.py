"""What tests ask for by name."""

import pytest

from services.device import Device, Want, select
from services.errors import HostError


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
