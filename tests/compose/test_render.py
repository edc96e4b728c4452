"""The compose document: every container is as small a target as it can be; the same plan gives the same document."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.engines.containers.compose_file import HostProperties, compose_project_name, render_compose_document
from compose.engines.containers.engine import RunSubnets
from compose.scenario_files.load import load_scenario, shipped_scenario_paths
from services.cluster.network import Network, SharedLink
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

ADDRESSES = RunSubnets(data="10.64.0", control="10.64.1")
HOST = HostProperties(
    images={"cpu": "ensayo-node:cpu", "cuda": "ensayo-node:cuda"},
    secrets_folder=Path("/secrets"),
    user="10001:10001",
    has_gpu=False,
    supports_start_interval=True,
)
Document = dict[str, Any]


def plan_of(path: Path, number: int = 0, settings: Mapping[str, str] | None = None) -> Plan:
    """The plan of one of a scenario's trials."""
    return make_plan(load_scenario(path, settings).trials()[number], "run", "docker", ADDRESSES)


@pytest.fixture(scope="module", params=["smoke", "two-servers", "scaling-check"])
def document(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Document:
    """Documents of plans with and without servers, with few and with many workers."""
    return render_compose_document(plan_of(pytestconfig.rootpath / "scenarios" / f"{request.param}.yaml", -1), HOST)


@pytest.fixture
def every(document: Document) -> list[dict[str, Any]]:
    """Every container of a document."""
    return list(document["services"].values())


def test_compose_takes_the_name_of_every_trial_of_every_shipped_scenario() -> None:
    """A value of a sweep may be 0.5 or 100mbit/s; Compose refuses a project for a dot in its name."""
    for path in shipped_scenario_paths():
        for trial in load_scenario(path).trials():
            name = compose_project_name(make_plan(trial, "20261121t084942z-5a51", "docker", ADDRESSES))
            assert re.fullmatch("[a-z0-9][a-z0-9_-]*", name), name


def test_nobody_is_root(every: list[dict[str, Any]]) -> None:
    """Root in a container is root of the host once it gets out."""
    assert all(node["user"].split(":")[0] not in ("", "0", "root") for node in every)


def test_the_root_file_system_is_read_only(every: list[dict[str, Any]]) -> None:
    """A node writes to its standard output and nowhere else."""
    assert all(node["read_only"] is True for node in every)
    assert all(mount.startswith("/tmp:size=") for node in every for mount in node["tmpfs"])  # noqa: S108 - the container's


def test_all_capabilities_are_dropped_and_none_comes_back(every: list[dict[str, Any]]) -> None:
    """A worker that can undo its own limits proves nothing."""
    assert all(node["cap_drop"] == ["ALL"] and "cap_add" not in node for node in every)


def test_nobody_can_gain_rights(every: list[dict[str, Any]]) -> None:
    """Set-user-id files have no effect."""
    assert all("no-new-privileges:true" in node["security_opt"] for node in every)


def test_the_number_of_processes_is_limited(every: list[dict[str, Any]]) -> None:
    """A fork bomb stays in its container."""
    assert all(0 < node["pids_limit"] <= 128 for node in every)


def test_memory_is_limited_and_swap_adds_nothing(every: list[dict[str, Any]]) -> None:
    """A node that swaps is slower than any declared device."""
    assert all(node["mem_limit"] > 0 and node["memswap_limit"] == node["mem_limit"] for node in every)


def test_the_cpu_share_is_a_quota_of_short_periods(every: list[dict[str, Any]]) -> None:
    """`cpus` has periods of 100 ms: a small share would cut a step in two."""
    assert all(node["cpu_period"] == 10_000 and node["cpu_quota"] >= 1_000 for node in every)
    assert not any("cpus" in node for node in every)


def test_an_init_process_passes_signals_on_and_reaps(every: list[dict[str, Any]]) -> None:
    """Python as process 1 would ignore SIGTERM."""
    assert all(node["init"] is True for node in every)


def test_every_node_has_a_health_check_of_its_own(document: Document) -> None:
    """It asks the node's gRPC health service."""
    for name, node in document["services"].items():
        assert node["healthcheck"]["test"][-2:] == ["health", name]


def test_everything_is_labelled_with_its_run(document: Document) -> None:
    """`ensayo clean` finds leftovers by it."""
    for name, node in document["services"].items():
        assert node["labels"]["ensayo.run"] == "run"
        assert node["labels"]["ensayo.node"] == name
        assert node["labels"]["ensayo.role"] in ("coordinator", "worker", "ps_shard")
    assert all(network["labels"]["ensayo.run"] == "run" for network in document["networks"].values())


def test_nothing_of_the_host_is_mounted_but_the_plan_and_the_nodes_own_secrets(document: Document) -> None:
    """No engine socket, no folder of the host; and no node sees another's key."""
    for name, node in document["services"].items():
        assert not {"volumes", "volumes_from", "devices"} & node.keys()
        assert [config["source"] for config in node["configs"]] == ["plan"]
        assert all(secret["source"].startswith(f"{name}-") for secret in node["secrets"])
    assert "docker.sock" not in json.dumps(document)
    assert "volumes" not in document


def test_no_port_is_published(every: list[dict[str, Any]]) -> None:
    """Nothing outside this host reaches a node."""
    assert not any({"ports", "expose"} & node.keys() for node in every)


def test_nobody_is_privileged(every: list[dict[str, Any]]) -> None:
    """Privileged containers have all devices and capabilities."""
    assert not any("privileged" in node for node in every)


def test_no_namespace_is_shared_with_the_host(every: list[dict[str, Any]]) -> None:
    """Nor with another container: a node sees itself."""
    shared = {"network_mode", "pid", "ipc", "uts", "userns_mode", "cgroup", "cgroup_parent"}
    assert not any(shared & node.keys() for node in every)


def test_both_networks_are_internal(document: Document) -> None:
    """A node reaches the nodes of its trial and nothing else."""
    assert set(document["networks"]) == {"data", "control"}
    assert all(network["internal"] is True for network in document["networks"].values())


def test_the_coordinator_has_no_place_on_the_data_network(document: Document) -> None:
    """What it says must not take from links that are measured."""
    for name, node in document["services"].items():
        assert set(node["networks"]) == ({"control"} if name == "coordinator" else {"control", "data"})


def test_congestion_control_does_not_depend_on_the_host(every: list[dict[str, Any]]) -> None:
    """bbr paces by its own estimate and misses the rate of a small shaped link."""
    assert all(node["sysctls"]["net.ipv4.tcp_congestion_control"] == "reno" for node in every)


def test_nobody_answers_for_an_address_of_another_network(every: list[dict[str, Any]]) -> None:
    """A data address that the control network knows is a way around the shaped link."""
    assert all(node["sysctls"]["net.ipv4.conf.all.arp_ignore"] == "1" for node in every)


def test_the_image_uses_one_blas_thread_and_no_root(pytestconfig: pytest.Config) -> None:
    """More threads would take other nodes' cores and change the order of sums."""
    dockerfile = (pytestconfig.rootpath / "images" / "Dockerfile").read_text()

    assert "OMP_NUM_THREADS=1" in dockerfile
    assert "OPENBLAS_NUM_THREADS=1" in dockerfile
    assert "USER 10001:10001" in dockerfile


def test_a_worker_for_cuda_reserves_one_gpu_and_takes_the_cuda_image(pytestconfig: pytest.Config) -> None:
    """The engine hands it out; a server never gets one."""
    smoke = pytestconfig.rootpath / "scenarios" / "smoke.yaml"
    document = render_compose_document(plan_of(smoke, -1, {"cluster.worker.device": "cuda"}), HOST)

    for name, node in document["services"].items():
        wants = name.startswith("worker")
        assert node["image"] == f"ensayo-node:{'cuda' if wants else 'cpu'}"
        assert ("deploy" in node) == wants
    (device,) = document["services"]["worker-0"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_an_old_engine_is_not_asked_for_what_it_does_not_know(pytestconfig: pytest.Config) -> None:
    """`start_interval` is an error for engines before 25."""
    plan = plan_of(pytestconfig.rootpath / "scenarios" / "smoke.yaml")
    old = HostProperties(HOST.images, HOST.secrets_folder, HOST.user, has_gpu=False, supports_start_interval=False)

    assert all(
        "start_interval" not in node["healthcheck"] for node in render_compose_document(plan, old)["services"].values()
    )


def test_the_switch_is_as_small_a_target_as_a_node(pytestconfig: pytest.Config) -> None:
    """It forwards what passes and holds nothing: no capability, secret, plan, or address on the control network."""
    plan = plan_of(pytestconfig.rootpath / "scenarios" / "smoke.yaml")
    names = tuple(node.name for node in plan.nodes if node.role == "worker")
    pipe = SharedLink(name="rack-0 up", rate_bps=1e8, sources=names, targets=names)

    services = render_compose_document(plan.model_copy(update={"network": Network(shared_links=(pipe,))}), HOST)[
        "services"
    ]

    assert "switch" not in render_compose_document(plan, HOST)["services"]
    switch, worker = services["switch"], services["worker-0"]
    alike = ("user", "read_only", "cap_drop", "security_opt", "init", "restart", "cpu_period")
    assert {key: switch[key] for key in alike} == {key: worker[key] for key in alike}
    assert not {"cap_add", "secrets", "configs", "volumes", "ports", "privileged", "network_mode"} & switch.keys()
    assert switch["mem_limit"] == switch["memswap_limit"]
    assert switch["pids_limit"] <= worker["pids_limit"]
    assert set(switch["networks"]) == {"data"}
    assert switch["labels"]["ensayo.role"] == switch["labels"]["ensayo.node"] == "switch"
    assert switch["sysctls"]["net.ipv4.conf.all.send_redirects"] == "0"


@given(workers=st.integers(1, 12), servers=st.integers(1, 3), cpus=st.floats(0.01, 8), dilation=st.floats(1, 100))
@settings(max_examples=25, deadline=None)
def test_the_same_plan_gives_the_same_document(workers: int, servers: int, cpus: float, dilation: float) -> None:
    """Nothing in it depends on time, chance or order; a plan that went through JSON is the same plan."""
    given_as = {
        "name": "any",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": workers, "worker": {"cpus": cpus}, "server": {"cpus": cpus}},
        "strategies": {"ps": {"kind": "parameter_server", "servers": servers}},
        "dilation": dilation,
        "baseline": False,
    }
    (trial,) = Scenario.decode(given_as).trials()
    plan = make_plan(trial, "run", "docker", ADDRESSES)

    document = render_compose_document(plan, HOST)

    assert yaml.safe_dump(document) == yaml.safe_dump(
        render_compose_document(Plan.model_validate_json(plan.model_dump_json()), HOST)
    )
    assert yaml.safe_load(yaml.safe_dump(document)) == document
    assert all(node["cpu_quota"] >= 1_000 for node in document["services"].values())


@pytest.mark.parametrize("path", shipped_scenario_paths(), ids=lambda path: path.stem)
def test_the_document_of_a_shipped_scenario_is_the_one_that_was_reviewed(path: Path, golden: "Golden") -> None:
    """A refactor changes none; a change is read in review (`--rewrite`)."""
    document = render_compose_document(plan_of(path), HOST)

    golden(path, yaml.safe_dump(document, sort_keys=False))


Golden = Callable[[Path, str], None]


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares with the file of this name, or writes it."""
    folder = pytestconfig.rootpath / "tests" / "golden" / "compose"

    def compare(path: Path, text: str) -> None:
        file = folder / path.name
        if pytestconfig.getoption("--rewrite"):
            folder.mkdir(exist_ok=True)
            file.write_text(text)
        assert text == file.read_text()

    return compare
