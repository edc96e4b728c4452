"""Examples and tables of the documentation agree with the code."""

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml
from pydantic import TypeAdapter

from compose.scenario_files.load import load_scenario
from compose.scenario_files.yaml_document import parse_yaml
from services.cluster.addresses import DummyAddresses
from services.cluster.device_profiles import RELATIVE_THROUGHPUT
from services.cluster.links.access_link import LINK_PROFILES
from services.cluster.links.link_properties import DISTANCE_DELAYS
from services.collectives import AnyCollective, AutoCollective
from services.learning.datasets.files import AnyFileDataset
from services.learning.partitions import AnyPartition
from services.plan import make_plan
from services.scenario.workload import Workload
from services.schema.limits import MAX_PARAMETERS, MAX_SERVERS, MAX_STEPS, MAX_TRIALS, MAX_WORKERS

BASE = """
name: documented
workload:
  dataset: {kind: digits}
  model: {kind: linear}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 64
strategies:
  ring: {kind: all_reduce}
"""


def test_every_cluster_example_makes_a_plan(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """A user who copies an example must get no error, also in virtual time, which works on every host."""
    page = (pytestconfig.rootpath / "docs" / "cluster.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "documented.yaml"

    assert len(examples) >= 6
    for example in examples:
        document = parse_yaml(BASE, "base").data | parse_yaml(example, "docs/cluster.md").data
        file.write_text(yaml.safe_dump(document))
        for trial in load_scenario(file, engine="simulated").trials():
            assert make_plan(trial, "run", "simulated", DummyAddresses()).nodes, yaml.safe_dump(document)


def test_the_collectives_page_has_a_row_for_every_collective(pytestconfig: pytest.Config) -> None:
    """A user who chooses a collective must see all of them, each with its closed form."""
    page = (pytestconfig.rootpath / "docs" / "collectives.md").read_text()
    collectives = get_args(get_args(AnyCollective)[0])

    assert [
        collective for collective in collectives if f"| `{collective.model_fields['kind'].default}` |" not in page
    ] == []
    closed_forms = {
        collective: collective.closed_form.split(";")[0].split(",")[0]
        for collective in collectives
        if collective is not AutoCollective
    }
    assert [collective for collective, closed_form in closed_forms.items() if closed_form not in page] == []


def test_the_cluster_page_lists_every_profile_with_its_value(pytestconfig: pytest.Config) -> None:
    """A value that changes in the code must also change on the page."""
    page = (pytestconfig.rootpath / "docs" / "cluster.md").read_text()

    assert [name for name, speed in RELATIVE_THROUGHPUT.items() if f"`{name}` {speed:g}" not in page] == []
    assert [name for name in LINK_PROFILES if f"`{name}`" not in page] == []
    assert [name for name, delay in DISTANCE_DELAYS.items() if f"`{name}` {1e3 * delay:g} ms" not in page] == []


def test_the_readme_states_the_limits_of_a_scenario(pytestconfig: pytest.Config) -> None:
    """A user plans an experiment with them."""
    text = (
        f"at most {MAX_WORKERS:,} workers, {MAX_SERVERS:,} servers, {MAX_TRIALS:,} trials, "
        f"{MAX_STEPS:,} training steps per trial and {MAX_PARAMETERS:,} parameters"
    )

    assert text in (pytestconfig.rootpath / "README.md").read_text(encoding="utf-8")


def test_every_data_example_is_a_valid_part_of_a_workload(pytestconfig: pytest.Config) -> None:
    """A user copies an example and changes the path."""
    page = (pytestconfig.rootpath / "docs" / "data.md").read_text(encoding="utf-8")
    examples = [parse_yaml(text, "docs/data.md").data for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    adapters = {key: TypeAdapter(field) for key, field in get_type_hints(Workload, include_extras=True).items()}

    assert {key for example in examples for key in example} == {"dataset", "order", "partition"}
    for example in examples:
        for key, value in example.items():
            assert adapters[key].validate_json(json.dumps(value), strict=True).kind == value["kind"]


def test_the_data_page_has_a_row_for_every_format_and_partition(pytestconfig: pytest.Config) -> None:
    """A user who chooses a format must see all of them."""
    page = (pytestconfig.rootpath / "docs" / "data.md").read_text(encoding="utf-8")
    formats = [kind.model_fields["kind"].default for kind in get_args(AnyFileDataset)]
    partitions = [kind.model_fields["kind"].default for kind in get_args(get_args(AnyPartition)[0])]

    assert [kind for kind in formats if f"| `{kind}` |" not in page] == []
    assert [kind for kind in partitions if f"{{kind: {kind}" not in page] == []
