"""Shipped scenarios that this host can plan."""

from functools import cache
from pathlib import Path

import pytest

from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import SkippedScenarioError
from services.scenario.scenario import Scenario


@cache
def load_or_skip(path: Path) -> Scenario:
    """Return a shipped scenario; skip the test if packages are missing without which no trial can be planned."""
    try:
        return load_scenario(path)
    except SkippedScenarioError as error:
        pytest.skip(str(error))
