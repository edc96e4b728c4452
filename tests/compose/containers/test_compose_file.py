"""The Compose document: every container has minimal rights, and the same plan gives the same document."""

import json
import re
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from data_files import SMALL_FILES
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped_scenarios import load_or_skip

from compose.engines.containers.compose_file import DockerHostProperties, compose_project_name, render_compose_document
from compose.engines.containers.engine import RunSubnets
from compose.engines.containers.node_image.build import DOCKERFILE
from compose.host.host_facts import user_cache_folder
from compose.scenario_files.load import load_scenario, shipped_scenario_paths
from services.cluster.network import Network, SharedLink
from services.plan import Plan, decode_plan, make_plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes

ADDRESSES = RunSubnets(data="10.64.0", control="10.64.1")
HOST = DockerHostProperties(
    images={"cpu": "ensayo-node:cpu", "cuda": "ensayo-node:cuda"},
    secrets_folder=Path("/secrets"),
    user="10001:10001",
    has_gpu=False,
    supports_start_interval=True,
)
VIRTUAL_ONLY = {"failures-at-scale"}  # 1,000 workers, whose document has 7 MB
Document = dict[str, Any]


def load_plan(path: Path, trial_index: int = 0, settings: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of one of the scenario's trials."""
    return make_plan(load_scenario(path, settings).trials()[trial_index], "run", "docker", ADDRESSES)


@pytest.fixture(scope="module", params=["smoke", "two-servers", "scaling-check"])
def document(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Document:
    """Return the document of each plan: with and without servers, with few and with many workers."""
    return render_compose_document(load_plan(pytestconfig.rootpath / "scenarios" / f"{request.param}.yaml", -1), HOST)


@pytest.fixture
def containers(document: Document) -> list[dict[str, Any]]:
    """Return all containers of a document."""
    return list(document["services"].values())


@pytest.mark.parametrize("path", shipped_scenario_paths(), ids=lambda path: path.stem)
def test_compose_accepts_the_project_name_of_every_shipped_trial(path: Path) -> None:
    """A value of a sweep may be 0.5 or 100mbit/s; Compose rejects a project with a dot in its name."""
    trials = load_or_skip(path).trials()
    plan = make_plan(trials[0], "20261121t084942z-5a51", "docker", ADDRESSES)

    assert plan.trial == trials[0].id
    for trial in trials:
        name = compose_project_name(plan.model_copy(update={"trial": trial.id}))
        assert re.fullmatch("[a-z0-9][a-z0-9_-]*", name), name


def test_no_container_runs_as_root(containers: list[dict[str, Any]]) -> None:
    """A process that escapes from a container as root is root on the host."""
    assert all(node["user"].split(":")[0] not in ("", "0", "root") for node in containers)


def test_nodes_that_read_samples_get_prepared_data_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Servers need no samples; the folder has the same path as on the host, which the plan states."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dataset = SMALL_FILES["csv"](tmp_path).keys | {"path": str(tmp_path / "table.csv")}
    plan = load_plan(
        pytestconfig.rootpath / "scenarios/two-servers.yaml",
        -1,
        {
            "workload.dataset": dataset,
            "workload.model": {"kind": "linear"},
            "workload.target": None,
            "workload.batch": 16,
        },
    )

    services = render_compose_document(plan, HOST)["services"]

    folder = str(plan.dataset.folder_on_nodes)
    expected = {"type": "bind", "source": folder, "target": folder, "read_only": True}
    for node in plan.nodes:
        data_mounts = services[node.name]["volumes"][1:]
        assert data_mounts == ([] if node.role == "ps_shard" else [expected | {"bind": {"create_host_path": False}}])


def test_the_root_file_system_of_containers_is_read_only(containers: list[dict[str, Any]]) -> None:
    """A node writes only to its standard output."""
    assert all(node["read_only"] is True for node in containers)
    assert all(mount.startswith("/tmp:size=") for node in containers for mount in node["tmpfs"])  # noqa: S108 - the container's


def test_all_capabilities_are_dropped_and_none_is_added(containers: list[dict[str, Any]]) -> None:
    """A worker that could remove its own limits would prove nothing."""
    assert all(node["cap_drop"] == ["ALL"] and "cap_add" not in node for node in containers)


def test_no_process_can_gain_privileges(containers: list[dict[str, Any]]) -> None:
    """Set-user-id files have no effect."""
    assert all("no-new-privileges:true" in node["security_opt"] for node in containers)


def test_the_number_of_processes_is_limited(containers: list[dict[str, Any]]) -> None:
    """A fork bomb stays in its container."""
    assert all(0 < node["pids_limit"] <= 128 for node in containers)


def test_memory_is_limited_and_swap_is_disabled(containers: list[dict[str, Any]]) -> None:
    """A node that swaps is slower than any declared device."""
    assert all(node["mem_limit"] > 0 and node["memswap_limit"] == node["mem_limit"] for node in containers)


def test_the_cpu_share_is_a_quota_of_short_periods(containers: list[dict[str, Any]]) -> None:
    """The option `cpus` uses periods of 100 ms: with a small share they would interrupt a step."""
    assert all(node["cpu_period"] == 10_000 and node["cpu_quota"] >= 1_000 for node in containers)
    assert not any("cpus" in node for node in containers)


def test_an_init_process_forwards_signals_and_reaps_processes(containers: list[dict[str, Any]]) -> None:
    """Python as process 1 would ignore SIGTERM."""
    assert all(node["init"] is True for node in containers)


def test_every_node_has_its_own_health_check(document: Document) -> None:
    """The check calls the node's gRPC health service."""
    for name, node in document["services"].items():
        assert node["healthcheck"]["test"][-2:] == ["health", name]


def test_containers_and_networks_are_labelled_with_their_run(document: Document) -> None:
    """`ensayo clean` finds leftovers by this label."""
    for name, node in document["services"].items():
        assert node["labels"]["ensayo.run"] == "run"
        assert node["labels"]["ensayo.node"] == name
        assert node["labels"]["ensayo.role"] in ("coordinator", "worker", "ps_shard")
    assert all(network["labels"]["ensayo.run"] == "run" for network in document["networks"].values())


def test_only_the_plan_the_secrets_of_the_node_and_the_runner_pipe_are_mounted(document: Document) -> None:
    """No engine socket and no folder of the host is mounted, and no node can read another node's key."""
    for name, node in document["services"].items():
        assert not {"volumes_from", "devices"} & node.keys()
        assert [(mount["source"], mount["read_only"]) for mount in node["volumes"]] == [("/secrets/runner", True)]
        assert [config["source"] for config in node["configs"]] == ["plan"]
        assert all(secret["source"].startswith(f"{name}-") for secret in node["secrets"])
    assert "docker.sock" not in json.dumps(document)
    assert "volumes" not in document


def test_no_port_is_published(containers: list[dict[str, Any]]) -> None:
    """No process outside this host can reach a node."""
    assert not any({"ports", "expose"} & node.keys() for node in containers)


def test_no_container_is_privileged(containers: list[dict[str, Any]]) -> None:
    """Privileged containers have all devices and capabilities."""
    assert not any("privileged" in node for node in containers)


def test_no_namespace_is_shared_with_the_host(containers: list[dict[str, Any]]) -> None:
    """Namespaces are not shared between containers either: a node sees only itself."""
    shared = {"network_mode", "pid", "ipc", "uts", "userns_mode", "cgroup", "cgroup_parent"}
    assert not any(shared & node.keys() for node in containers)


def test_both_networks_are_internal(document: Document) -> None:
    """A node reaches only the nodes of its trial."""
    assert set(document["networks"]) == {"data", "control"}
    assert all(network["internal"] is True for network in document["networks"].values())


def test_the_coordinator_is_not_on_the_data_network(document: Document) -> None:
    """Its messages must not use the links that are measured."""
    for name, node in document["services"].items():
        assert set(node["networks"]) == ({"control"} if name == "coordinator" else {"control", "data"})


def test_congestion_control_does_not_depend_on_the_host(containers: list[dict[str, Any]]) -> None:
    """bbr paces by its own estimate and does not reach the rate of a small shaped link."""
    assert all(node["sysctls"]["net.ipv4.tcp_congestion_control"] == "reno" for node in containers)


def test_no_node_answers_arp_for_an_address_of_another_network(containers: list[dict[str, Any]]) -> None:
    """A data address that is reachable over the control network would bypass the shaped link."""
    assert all(node["sysctls"]["net.ipv4.conf.all.arp_ignore"] == "1" for node in containers)


def test_the_image_uses_one_blas_thread_and_an_unprivileged_user() -> None:
    """More threads would use other nodes' cores and change the order of sums."""
    dockerfile = DOCKERFILE.read_text()

    assert "OMP_NUM_THREADS=1" in dockerfile
    assert "OPENBLAS_NUM_THREADS=1" in dockerfile
    assert "USER 10001:10001" in dockerfile


def test_a_cuda_worker_reserves_one_gpu_and_uses_the_cuda_image(pytestconfig: pytest.Config) -> None:
    """The engine assigns the GPU; a server never gets one."""
    smoke_scenario = pytestconfig.rootpath / "scenarios" / "smoke.yaml"
    document = render_compose_document(load_plan(smoke_scenario, -1, {"cluster.worker.device": "cuda"}), HOST)

    for name, node in document["services"].items():
        uses_cuda = name.startswith("worker")
        assert node["image"] == f"ensayo-node:{'cuda' if uses_cuda else 'cpu'}"
        assert ("deploy" in node) == uses_cuda
    (device,) = document["services"]["worker-0"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_document_for_an_old_engine_has_no_start_interval(pytestconfig: pytest.Config) -> None:
    """`start_interval` is an error for engines before version 25."""
    plan = load_plan(pytestconfig.rootpath / "scenarios" / "smoke.yaml")
    old_host = DockerHostProperties(
        HOST.images, HOST.secrets_folder, HOST.user, has_gpu=False, supports_start_interval=False
    )

    assert all(
        "start_interval" not in node["healthcheck"]
        for node in render_compose_document(plan, old_host)["services"].values()
    )


def test_nodes_use_the_same_kernels_of_blas_as_the_host(pytestconfig: pytest.Config) -> None:
    """Other kernels add in another order, so that containers would compute other bits than the other engines."""
    plan = load_plan(pytestconfig.rootpath / "scenarios" / "smoke.yaml")
    haswell = replace(HOST, blas_settings={"OPENBLAS_CORETYPE": "Haswell"})

    nodes = render_compose_document(plan, haswell)["services"].values()

    assert all(node["environment"] == {"OPENBLAS_CORETYPE": "Haswell"} for node in nodes)


def test_the_switch_has_no_more_rights_than_a_node(pytestconfig: pytest.Config) -> None:
    """It only forwards packets: it has no capability, secret, plan, or address on the control network."""
    plan = load_plan(pytestconfig.rootpath / "scenarios" / "smoke.yaml")
    worker_names = tuple(node.name for node in plan.nodes if node.role == "worker")
    uplink = SharedLink(name="rack-0 up", rate_bps=1e8, sources=worker_names, targets=worker_names)

    services = render_compose_document(plan.model_copy(update={"network": Network(shared_links=(uplink,))}), HOST)[
        "services"
    ]

    assert "switch" not in render_compose_document(plan, HOST)["services"]
    switch, worker = services["switch"], services["worker-0"]
    common_keys = ("user", "read_only", "cap_drop", "security_opt", "init", "restart", "cpu_period")
    assert {key: switch[key] for key in common_keys} == {key: worker[key] for key in common_keys}
    assert not {"cap_add", "secrets", "configs", "ports", "privileged", "network_mode"} & switch.keys()
    assert switch["volumes"] == worker["volumes"]
    assert switch["mem_limit"] == switch["memswap_limit"]
    assert switch["pids_limit"] <= worker["pids_limit"]
    assert set(switch["networks"]) == {"data"}
    assert switch["labels"]["ensayo.role"] == switch["labels"]["ensayo.node"] == "switch"
    assert switch["sysctls"]["net.ipv4.conf.all.send_redirects"] == "0"


@given(workers=st.integers(1, 12), servers=st.integers(1, 3), cpus=st.floats(0.01, 8), dilation=st.floats(1, 100))
@settings(max_examples=25, deadline=None)
def test_the_same_plan_gives_the_same_document(workers: int, servers: int, cpus: float, dilation: float) -> None:
    """The document does not depend on time, chance or order, and a plan that was stored as JSON is the same plan."""
    scenario = {
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
    (trial,) = Scenario.decode(scenario).trials()
    plan = make_plan(trial, "run", "docker", ADDRESSES)

    document = render_compose_document(plan, HOST)

    assert yaml.safe_dump(document) == yaml.safe_dump(
        render_compose_document(decode_plan(plan.model_dump_json()), HOST)
    )
    assert yaml.safe_load(yaml.safe_dump(document)) == document
    assert all(node["cpu_quota"] >= 1_000 for node in document["services"].values())


@pytest.mark.parametrize(
    "path", [path for path in shipped_scenario_paths() if path.stem not in VIRTUAL_ONLY], ids=lambda path: path.stem
)
def test_the_document_of_a_shipped_scenario_equals_the_reviewed_file(
    path: Path, compare_with_golden_file: "CompareWithGoldenFile"
) -> None:
    """A refactoring changes no document; changed documents are reviewed (`--rewrite`)."""
    load_or_skip(path)
    document = render_compose_document(load_plan(path), HOST)

    text = yaml.safe_dump(document, sort_keys=False).replace(str(user_cache_folder().resolve()), "/cache")
    text = text.replace(str(path.resolve().parent), "/scenarios").replace(sysconfig.get_path("purelib"), "/packages")
    compare_with_golden_file(path, text)


CompareWithGoldenFile = Callable[[Path, str], None]


@pytest.fixture
def compare_with_golden_file(pytestconfig: pytest.Config) -> CompareWithGoldenFile:
    """Return a function that compares a text with the golden file of this name, or writes the file."""
    folder = pytestconfig.rootpath / "tests" / "golden" / "compose"

    def compare(path: Path, text: str) -> None:
        file = folder / path.name
        if pytestconfig.getoption("--rewrite"):
            folder.mkdir(exist_ok=True)
            file.write_text(text)
        assert text == file.read_text()

    return compare
