"""The JSON Schema that editors use."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from compose.scenario_files.json_schema import scenario_schema
from compose.scenario_files.load import shipped_scenario_paths
from compose.scenario_files.yaml_document import parse_yaml

VALIDATOR = jsonschema.Draft202012Validator(scenario_schema())


def test_the_committed_schema_matches_the_code(pytestconfig: pytest.Config) -> None:
    """Editors read the file; `pytest --rewrite` rewrites it."""
    file = pytestconfig.rootpath / "docs" / "scenario.schema.json"
    text = json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"

    if pytestconfig.getoption("--rewrite"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", shipped_scenario_paths(), ids=lambda path: path.stem)
def test_the_schema_accepts_every_shipped_scenario(path: Path) -> None:
    """An editor that underlines a correct file teaches users to ignore its warnings."""
    VALIDATOR.validate(parse_yaml(path.read_text(), path.name).data)


@pytest.mark.parametrize(
    "file_stem", ["unknown_key", "bare_number", "wrong_unit", "unknown_kind", "missing_required_keys"]
)
def test_the_schema_rejects_invalid_scenarios(file_stem: str, pytestconfig: pytest.Config) -> None:
    """An editor then shows the mistake before the scenario is loaded."""
    text = (pytestconfig.rootpath / "tests" / "broken" / f"{file_stem}.yaml").read_text()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), scenario_schema())
