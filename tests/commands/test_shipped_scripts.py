"""Shipped scenarios with unmodified training scripts, on their smallest sizes."""

import runpy
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeAlias

import pytest

from compose.scenario_files.load import find_scenario, load_scenario
from services.cluster.addresses import DummyAddresses
from services.plan import make_plan
from services.scenario.commands.command_workload import CommandWorkload

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RunTrial: TypeAlias = Callable[..., Any]

FAST = {"cluster__worker__throughput": "null"}  # as fast as this host
UNSHAPED = {"cluster__worker__uplink": "null", "cluster__worker__downlink": "null"}
SMALL = "[python, 'train_{script}.py', --epochs, 2, --samples, 128, --seed, '{seed}']"
LENET_PARAMETERS = 61_706


def settings_of(engine: str) -> dict[str, str]:
    """Return settings with which a script trains fast; processes can't shape the links of gloo."""
    return {"workers": "2", **FAST, **(UNSHAPED if engine == "local" else {})}


def read_metrics(trial: Any) -> list[dict[str, float]]:
    return [event["value"] for event in trial.events("coordinator", "eval_metrics")]


def test_ddp_and_fsdp2_train_the_same_model(run_trial: RunTrial, engine: str) -> None:
    """The scenario compares their bytes and times, which says nothing if they compute different things."""
    path = find_scenario("own-script-fsdp2")
    ddp, fsdp2 = (
        read_metrics(run_trial(engine, path, "gloo", workload__command=SMALL, **settings))
        for settings in (settings_of(engine) | {"workload__variables__script": script} for script in ("ddp", "fsdp2"))
    )

    assert len(ddp) == 2
    assert [values["loss"] for values in fsdp2] == pytest.approx([values["loss"] for values in ddp], abs=2e-3)


def test_fsdp2_on_gloo_sends_twice_the_bytes_of_ddp() -> None:
    """The comment of the scenario states 4 S (n-1)/n and 2 S (n-1)/n; layers are padded to a multiple of the ranks."""
    sent = {}
    for trial in load_scenario(find_scenario("own-script-fsdp2")).trials():
        plan = make_plan(trial, "run", "docker", DummyAddresses())
        sent[trial.labels["workload.variables.script"], plan.workers] = plan.bytes_per_step["worker-0"]

    for workers in (2, 4):
        assert sent["fsdp2", workers] / sent["ddp", workers] == pytest.approx(2, rel=0.05)


def test_more_ranks_reach_the_target_of_the_ddp_script_in_fewer_steps(run_trial: RunTrial) -> None:
    """Otherwise its scenario would compare nothing but the speed of links."""
    steps = {}
    for workers in (1, 2):
        trial = run_trial("local", find_scenario("own-script-ddp"), "ddp", **FAST, **UNSHAPED, workers=str(workers))
        reached = [
            event["metadata"]["step"]
            for event in trial.events("coordinator", "eval_metrics")
            if event["value"]["accuracy"] >= trial.plan.target.at_least
        ]
        steps[workers] = reached[0]

    assert 0 < steps[2] < steps[1]


def test_lenet_of_pytorch_trains_in_the_comparison_of_frameworks(run_trial: RunTrial, engine: str) -> None:
    """All frameworks train the same model to a useful quality, and state the time of a step."""
    trial = run_trial(engine, find_scenario("frameworks"), "pytorch", **settings_of(engine))

    assert read_metrics(trial)[-1]["accuracy"] > 0.85
    assert all(values["step_ms"] > 0 for values in read_metrics(trial))


def test_lenet_has_the_same_parameters_in_all_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of different sizes would take different times on the same links."""
    scenario = load_scenario(find_scenario("frameworks"))
    scripts = find_scenario("frameworks").with_suffix("")
    monkeypatch.syspath_prepend(str(scripts))

    counts = {
        "pytorch": sum(p.numel() for p in runpy.run_path(f"{scripts}/lenet_pytorch.py")["make_lenet"]().parameters())
    }
    if find_spec("tensorflow") is not None:
        counts["tensorflow"] = runpy.run_path(f"{scripts}/lenet_tensorflow.py")["make_lenet"]().count_params()

    plan = make_plan(scenario.trials()[0], "run", "docker", DummyAddresses())
    assert {*counts.values(), plan.parameters} == {LENET_PARAMETERS}


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs TensorFlow")
@pytest.mark.parametrize(
    ("scenario", "trial_part"), [("own-script-tensorflow", "mirrored"), ("frameworks", "tensorflow")]
)
def test_scripts_of_tensorflow_train(run_trial: RunTrial, engine: str, scenario: str, trial_part: str) -> None:
    """TensorFlow finds the other workers through TF_CONFIG."""
    trial = run_trial(engine, find_scenario(scenario), trial_part, **settings_of(engine))

    assert read_metrics(trial)[-1]["accuracy"] > 0.85


@pytest.mark.parametrize("name", ["own-script-ddp", "own-script-fsdp2", "own-script-tensorflow", "frameworks"])
def test_commands_state_the_packages_that_they_need(name: str) -> None:
    """Without, a trial on a host without PyTorch would fail with an ImportError in all nodes."""
    workloads = [trial.scenario.workload for trial in load_scenario(find_scenario(name)).trials()]
    commands = [workload for workload in workloads if isinstance(workload, CommandWorkload)]

    assert commands
    assert all({"torch", "tensorflow"} & set(workload.requires) for workload in commands)
