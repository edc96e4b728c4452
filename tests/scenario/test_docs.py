"""What the documentation shows must load."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from compose.scenario_files.load import load_scenario
from compose.scenario_files.yaml_document import parse_yaml
from services.cluster.addresses import InProcessAddresses
from services.cluster.device_profiles import RELATIVE_THROUGHPUT
from services.cluster.links.access_link import LINK_PROFILES
from services.cluster.links.link_properties import DISTANCE_DELAYS
from services.collectives import AnyCollective, AutoCollective
from services.plan import make_plan

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


def test_every_example_of_a_cluster_makes_a_plan(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Whoever copies one must not meet an error, also in virtual time, which every host has."""
    page = (pytestconfig.rootpath / "docs" / "cluster.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "documented.yaml"

    assert len(examples) >= 6
    for example in examples:
        document = parse_yaml(BASE, "base").data | parse_yaml(example, "docs/cluster.md").data
        file.write_text(yaml.safe_dump(document))
        for trial in load_scenario(file, engine="simulated").trials():
            assert make_plan(trial, "run", "simulated", InProcessAddresses()).nodes, yaml.safe_dump(document)


def test_the_page_on_collectives_has_a_row_for_every_member(pytestconfig: pytest.Config) -> None:
    """Whoever chooses must see them all, with what each takes."""
    page = (pytestconfig.rootpath / "docs" / "collectives.md").read_text()
    members = get_args(get_args(AnyCollective)[0])

    assert [member for member in members if f"| `{member.model_fields['kind'].default}` |" not in page] == []
    forms = {
        member: member.closed_form.split(";")[0].split(",")[0] for member in members if member is not AutoCollective
    }
    assert [member for member, form in forms.items() if form not in page] == []


def test_the_page_on_clusters_names_every_profile_with_its_value(pytestconfig: pytest.Config) -> None:
    """A value that changes in the code must change there."""
    page = (pytestconfig.rootpath / "docs" / "cluster.md").read_text()

    assert [name for name, speed in RELATIVE_THROUGHPUT.items() if f"`{name}` {speed:g}" not in page] == []
    assert [name for name in LINK_PROFILES if f"`{name}`" not in page] == []
    assert [name for name, delay in DISTANCE_DELAYS.items() if f"`{name}` {1e3 * delay:g} ms" not in page] == []
