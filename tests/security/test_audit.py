"""`make audit` says that packages have no known vulnerability only if they were looked up."""

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any

import pytest

SKIPPED = {"name": "numpy", "version": "2.0", "skip_reason": "not found on PyPI"}
SAFE = {"name": "numpy", "version": "2.0", "vulns": []}
UNSAFE = {"name": "pip", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}


@pytest.fixture(scope="module")
def audit(pytestconfig: pytest.Config) -> ModuleType:
    """The program `.ci/audit` as a module."""
    loader = SourceFileLoader("audit", str(pytestconfig.rootpath / ".ci" / "audit"))
    module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("packages", "exit_code", "text"),
    [
        ([SAFE], 0, "no known vulnerability in 1 packages"),
        ([SAFE, UNSAFE], 1, "pip 1.0: PYSEC-1, fixed in 1.1"),
        ([SKIPPED, UNSAFE], 1, "pip 1.0: PYSEC-1, fixed in 1.1"),
        ([SAFE, SKIPPED], 3, "not audited: 1 of 2 packages, the first because: not found on PyPI"),
        ([], 3, "not audited"),
    ],
)
def test_exit_codes_distinguish_safe_unsafe_and_not_audited(
    audit: ModuleType, packages: list[dict[str, Any]], exit_code: int, text: str
) -> None:
    """pip-audit itself prints "No known vulnerabilities found" for packages that it could not look up."""
    code, lines = audit.judge(json.dumps({"dependencies": packages, "fixes": []}), "")

    assert code == exit_code
    assert text in lines[0]


def test_without_a_service_the_reason_is_the_last_line_of_the_error(audit: ModuleType) -> None:
    code, lines = audit.judge("", "Traceback\nConnectionError: no route to host")

    assert (code, lines) == (3, ["not audited: ConnectionError: no route to host"])
