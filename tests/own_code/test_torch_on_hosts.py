"""PyTorch on hosts and in containers; these tests need no PyTorch."""

import sys
from pathlib import Path

import pytest
import yaml
from user_code import perceptron, torch_net

from compose.engines.containers.compose_file import DockerHostProperties, render_compose_document
from compose.engines.containers.engine import DockerEngine
from compose.engines.containers.node_image import packages
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from services.cluster.addresses import DummyAddresses
from services.learning.own_code import torch_package
from services.learning.own_code.torch_package import TorchInstallation
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario
from services.schema.errors import HostError

FOLDER = "/opt/venv/lib/site-packages"


def plan_with_torch() -> Plan:
    """Return the plan of a trial whose model needs PyTorch; only planning needs it on the host."""
    workload = {
        "dataset": {"kind": "linnerud"},
        "model": perceptron().model_dump(mode="json"),
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 4,
    }
    strategies = {"server": {"kind": "parameter_server"}}
    document = {"name": "mine", "workload": workload, "cluster": {"workers": 2}, "strategies": strategies}
    trial = Scenario.decode(document | {"baseline": False}).trials()[0]
    installation = TorchInstallation(version="2.13.0", folder=FOLDER)
    model = torch_net("Values").model_copy(update={"installation": installation})
    return make_plan(trial, "run", "docker", DummyAddresses()).model_copy(update={"model": model})


def test_all_containers_get_code_and_packages_read_only() -> None:
    """The node image has no PyTorch."""
    plan = plan_with_torch()
    host = DockerHostProperties(
        {"cpu": "image"}, Path("/secrets"), "10001:10001", has_gpu=False, supports_start_interval=False
    )

    services = render_compose_document(plan, host)["services"]

    for node in plan.nodes:
        mounts = {mount["target"]: mount for mount in services[node.name]["volumes"]}
        for folder in (FOLDER, plan.model.module.folder):
            assert mounts[folder]["source"] == folder
            assert mounts[folder]["read_only"] is True


def test_another_python_than_that_of_the_image_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch is compiled for one minor version of Python."""
    monkeypatch.setattr(packages, "IMAGE_PYTHON", "3.1")

    with pytest.raises(HostError, match=r"the node image has Python 3\.1; install them with Python 3\.1"):
        DockerEngine().check_plans([plan_with_torch()])


def test_the_python_of_the_image_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has a good case, too, and models without PyTorch run with any version."""
    plan = plan_with_torch()
    DockerEngine().check_plans([plan.model_copy(update={"model": perceptron()})])
    monkeypatch.setattr(packages, "IMAGE_PYTHON", "{}.{}".format(*sys.version_info))

    DockerEngine().check_plans([plan])


def test_missing_pytorch_is_reported_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is optional."""
    monkeypatch.setattr(torch_package, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "net.py").write_text("import torch\n")
    workload = {
        "dataset": {"kind": "linnerud"},
        "model": {"kind": "torch", "module": "net.py:Net"},
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 4,
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "workload": workload, "strategies": {"one": {"kind": "none"}}}))

    with pytest.raises(ScenarioError, match=r"pip install 'torch>=2\.4'"):
        load_scenario(path)


def test_nodes_import_from_the_end_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the node image take precedence over those of the host."""
    (tmp_path / "torch.py").write_text("set_num_threads = int\n")
    monkeypatch.setattr(torch_package, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not Path(path, "torch").is_dir()])
    torch_package.import_torch.cache_clear()

    module = torch_package.import_torch(TorchInstallation(version="0", folder=str(tmp_path)))

    torch_package.import_torch.cache_clear()
    monkeypatch.delitem(sys.modules, "torch")
    assert module.__file__ == str(tmp_path / "torch.py")
    assert sys.path[-1] == str(tmp_path)
