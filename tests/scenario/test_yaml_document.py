"""YAML text that is written from Python values, for scenarios and settings of the Python API."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from compose.scenario_files.problems import ScenarioError
from compose.scenario_files.yaml_document import parse_yaml, write_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(value=VALUES, in_one_line=st.booleans())
@example(value="1e-3", in_one_line=True)  # a number in YAML 1.2
@example(value=["on", "12:30"], in_one_line=False)  # a boolean and a number in YAML 1.1
@example(value={"a\x85": ["\u2028", "\u2029b"]}, in_one_line=False)  # line breaks in YAML 1.1
def test_written_yaml_is_read_as_the_same_value(value: Any, in_one_line: bool) -> None:
    """A scenario that is given as a dict is run from the text that is kept in the run folder.

    The reports read that text by the rules of YAML 1.1, where `12:30` is a number.
    """
    text = write_yaml(value, "value", in_one_line=in_one_line)

    assert parse_yaml(text, "value").data == value
    assert yaml.safe_load(text) == value


@pytest.mark.parametrize("value", [Path("x"), {1, 2}, date(2026, 1, 1), b"x", {"a": [range(2)]}])
def test_a_value_of_another_type_is_an_error(value: object) -> None:
    """A set or a date would become another value without notice."""
    with pytest.raises(ScenarioError, match=r"^--set seed: .* has the type \w+; allowed are text, numbers, booleans,"):
        write_yaml(value, "--set seed", in_one_line=True)


def test_a_list_that_contains_itself_is_an_error() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(ScenarioError, match=r"^scenario dict: a list or dict contains itself"):
        write_yaml(endless, "scenario dict")
