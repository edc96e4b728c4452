"""What every test can use."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Expected texts are files beside their inputs; this writes them anew, for review."""
    parser.addoption("--rewrite", action="store_true", help="write expected messages anew")
