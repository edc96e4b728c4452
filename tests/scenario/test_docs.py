"""Examples and tables of the documentation agree with the code."""

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml
from pydantic import TypeAdapter

from analysis.report.wording import describe_payload
from compose.scenario_files.load import load_scenario
from compose.scenario_files.yaml_document import parse_yaml
from services.cluster.addresses import DummyAddresses
from services.cluster.device_profiles import PEAK_FLOP_PER_S, RELATIVE_THROUGHPUT
from services.cluster.links.access_link import LINK_PROFILES
from services.cluster.links.link_properties import DISTANCE_DELAYS
from services.collectives import AnyCollective, AutoCollective
from services.learning.datasets.files import AnyFileDataset
from services.learning.optimisers import AnyOptimiser
from services.learning.partitions import AnyPartition
from services.learning.published_models import PUBLISHED_MODELS
from services.learning.schedules import AnySchedule
from services.plan import make_plan
from services.scenario.workload import Workload
from services.schema.limits import MAX_PARAMETERS, MAX_SERVERS, MAX_STEPS, MAX_TRIALS, MAX_WORKERS
from services.strategies.auto import AutoStrategy
from services.strategies.vector_sums import AnyGradientCompression

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


@pytest.mark.parametrize("page", ["README.md", "docs/own-code.md", "docs/cluster.md"])
def test_examples_with_limited_links_limit_those_of_servers_too(pytestconfig: pytest.Config, page: str) -> None:
    """An unlimited server beside limited workers makes the parameter server look faster than it is."""
    text, compared = (pytestconfig.rootpath / page).read_text(), 0
    for example in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        document = parse_yaml(example, page).data
        kinds = [strategy.get("kind") for strategy in document.get("strategies", {}).values()]
        worker, server = (document.get("cluster", {}).get(role, {}) for role in ("worker", "server"))
        if "parameter_server" in kinds:
            assert {"uplink", "downlink"} & worker.keys() <= server.keys(), example
            compared += 1
    assert compared


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


def test_the_compression_page_has_a_row_for_every_compressor(pytestconfig: pytest.Config) -> None:
    """A user who chooses a compressor must see all of them, each with its error."""
    page = (pytestconfig.rootpath / "docs" / "compression.md").read_text()
    kinds = [member.model_fields["kind"].default for member in get_args(get_args(AnyGradientCompression)[0])]

    assert [kind for kind in kinds if f"| `{kind}` |" not in page] == []


def test_the_example_of_the_compression_page_makes_a_plan(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """A user who copies the example must get no error, and fewer bytes with each strategy."""
    page = (pytestconfig.rootpath / "docs" / "compression.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "documented.yaml"
    file.write_text(
        yaml.safe_dump(parse_yaml(BASE, "base").data | {"baseline": False} | yaml.safe_load(example), sort_keys=False)
    )

    plans = [make_plan(trial, "run", "docker", DummyAddresses()) for trial in load_scenario(file).trials()]

    pushed = [plan.bytes_per_step["worker-0"] for plan in plans]
    assert pushed == sorted(set(pushed), reverse=True)


def test_the_page_of_automatic_strategies_has_all_keys_with_their_defaults(pytestconfig: pytest.Config) -> None:
    """A user decides by this table whether a default suits."""
    page = (pytestconfig.rootpath / "docs" / "auto.md").read_text()
    fields = {name: field for name, field in AutoStrategy.model_fields.items() if name != "kind"}

    for name, field in fields.items():
        default = {None: "a default list", "exact": "`exact`"}.get(field.default, str(field.default))
        assert f"| `{name}` | {default} |" in page, name


def test_the_example_of_the_page_of_automatic_strategies_makes_plans(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """A user who copies the example must get no error; a weaker guard never predicts a longer step."""
    page = (pytestconfig.rootpath / "docs" / "auto.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    link = {"uplink": "100mbit", "downlink": "100mbit"}
    cluster = {"cluster": {"workers": 4, "worker": {"throughput": "1000/s", **link}, "server": link}}
    workload = {"workload": parse_yaml(BASE, "base").data["workload"] | {"model": {"kind": "mlp", "hidden": [64]}}}
    document = parse_yaml(BASE, "base").data | workload | cluster | {"baseline": False} | yaml.safe_load(example)
    file = tmp_path / "documented.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))

    plans = [make_plan(trial, "run", "docker", DummyAddresses()) for trial in load_scenario(file).trials()]

    assert [plan.label for plan in plans] == ["exact", "rounded", "lossy", "listed"]
    steps = [plan.predicted.step_s for plan in plans[:3]]
    assert steps == sorted(steps, reverse=True)


def test_the_optimisation_page_has_a_row_for_every_optimiser_and_schedule(pytestconfig: pytest.Config) -> None:
    """A user who chooses an optimiser must see all of them, and which ones need a single server."""
    page = (pytestconfig.rootpath / "docs" / "optimisation.md").read_text()
    kinds = [
        member.model_fields["kind"].default
        for family in (AnyOptimiser, AnySchedule)
        for member in get_args(get_args(family)[0])
    ]

    assert [kind for kind in kinds if f"| `{kind}` |" not in page] == []


def test_the_example_of_the_optimisation_page_makes_a_plan(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """A user who copies the example must get no error."""
    page = (pytestconfig.rootpath / "docs" / "optimisation.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    document = parse_yaml(BASE, "base").data
    workload = {key: value for key, value in document["workload"].items() if key != "batch"}
    file = tmp_path / "documented.yaml"
    file.write_text(yaml.safe_dump(document | {"workload": workload | yaml.safe_load(example)["workload"]}))

    plans = [make_plan(trial, "run", "docker", DummyAddresses()) for trial in load_scenario(file).trials()]

    assert {plan.batch_rate_factor for plan in plans} == {(32 / 64) ** 0.5}


def test_the_cluster_page_lists_every_profile_with_its_value(pytestconfig: pytest.Config) -> None:
    """A value that changes in the code must also change on the page."""
    page = (pytestconfig.rootpath / "docs" / "cluster.md").read_text()

    assert [name for name, speed in RELATIVE_THROUGHPUT.items() if f"`{name}` {speed:g}" not in page] == []
    assert [name for name in LINK_PROFILES if f"`{name}`" not in page] == []
    assert [name for name, delay in DISTANCE_DELAYS.items() if f"`{name}` {1e3 * delay:g} ms" not in page] == []


def test_the_cluster_page_lists_every_peak_and_the_known_operations(pytestconfig: pytest.Config) -> None:
    """A utilisation is a share of these peaks."""
    page = (pytestconfig.rootpath / "docs" / "cluster.md").read_text()

    assert [name for name, peak in PEAK_FLOP_PER_S.items() if f"`{name}` {peak / 1e12:g}" not in page] == []
    known = {name: model.flops_per_sample for name, model in PUBLISHED_MODELS.items() if model.flops_per_sample}
    assert [name for name in known if f"`{name}` " not in page.split("The operations per sample")[1]] == []


def test_the_payload_page_lists_every_known_model_with_its_source(pytestconfig: pytest.Config) -> None:
    """A user must be able to see which parameters of a model count as exchanged."""
    page = (pytestconfig.rootpath / "docs" / "payload.md").read_text()

    rows = [
        f"| `{name}` | {model.parameter_count:,} | {model.number_format} | {model.source} |"
        for name, model in PUBLISHED_MODELS.items()
    ]
    assert [row for row in rows if row not in page] == []


def test_the_payload_example_makes_a_plan(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """A user who copies the example must get no error, and the sizes that the page states."""
    page = (pytestconfig.rootpath / "docs" / "payload.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "documented.yaml"
    file.write_text(yaml.safe_dump(parse_yaml(BASE, "base").data | parse_yaml(example, "docs/payload.md").data))

    (*_, trial) = load_scenario(file, engine="simulated").trials()
    payload = make_plan(trial, "run", "simulated", DummyAddresses()).payload

    assert payload is not None
    assert describe_payload(payload) in page
    assert f"is trained: {payload.trained_parameters:,} parameters" in page


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
