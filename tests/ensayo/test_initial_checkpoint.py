"""A scenario continues an earlier trial from its checkpoint, with the same global batch on any number of workers."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import ensayo
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from ensayo.exit_codes import ExitCode

pytestmark = pytest.mark.without_nodes

SCENARIO: dict[str, Any] = {
    "name": "continued",
    "workload": {
        "dataset": {"kind": "digits"},
        "model": {"kind": "mlp", "hidden": [16]},
        "optimiser": {"kind": "momentum", "rate": 0.05},
        "batch": 128,
        "epochs": 3,
    },
    "cluster": {"workers": 4, "worker": {"throughput": "2000/s", "uplink": "50mbit", "downlink": "50mbit"}},
    "strategies": {"ring": {"kind": "all_reduce"}},
    "baseline": False,
    "recovery": {"checkpoint": {"steps": 10}},
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a trial of 36 steps with checkpoints after 20 and 30."""
    run = ensayo.rehearse(SCENARIO, "simulated", tmp_path_factory.mktemp("runs"))
    assert run.exit_code == ExitCode.OK, run.reasons
    return next(run.folder.glob("trials/*"))


def continued_scenario(earlier: Path, **keys: Any) -> dict[str, Any]:
    return SCENARIO | {"recovery": {"checkpoint": {"steps": 10, "initial": str(earlier)}}} | keys


def test_a_trial_continues_on_several_numbers_of_workers(
    earlier: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The report states what its times and samples include."""
    scenario = continued_scenario(earlier, sweep={"workers": [1, 2, 4]})

    run = ensayo.rehearse(scenario, "simulated", tmp_path)

    assert run.exit_code == ExitCode.OK, run.reasons
    trials = run.summary["trials"]
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(run.summary)
    assert [trial["verdict"] for trial in trials] == ["valid"] * 3
    assert [trial["workers"] for trial in trials] == [1, 2, 4]
    assert [trial["steps"] for trial in trials] == [6, 6, 6]
    before = json.loads((earlier.parents[1] / "summary.json").read_text())["trials"][0]
    assert [trial["final"]["loss"] for trial in trials] == pytest.approx([before["final"]["loss"]] * 3, rel=1e-5)
    assert trials[2]["params_sha256"] == before["params_sha256"]
    assert run.continued_trials[1] == (
        f"001-ring-w2-r0: training continued from the checkpoint after step 30 of {earlier}, which has 4 workers; "
        "times and steps count from the checkpoint, samples of evaluations from the start of the earlier training"
    )


def test_a_path_is_relative_to_the_scenario_file(earlier: Path, tmp_path: Path) -> None:
    (tmp_path / "earlier").symlink_to(earlier)
    path = tmp_path / "continued.yaml"
    path.write_text(yaml.safe_dump(continued_scenario(Path("earlier"))))

    scenario = load_scenario(path)

    assert scenario.recovery.checkpoint
    assert scenario.recovery.checkpoint.initial == str(earlier.resolve())


def with_workload(**keys: Any) -> dict[str, Any]:
    return {"workload": SCENARIO["workload"] | keys}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            with_workload(batch=64),
            r"ring can't continue the earlier trial: batch is 128 in the earlier training, and 64",
        ),
        (with_workload(epochs=4), r"epochs is 3 in the earlier training, and 4 in this trial; both"),
        (
            with_workload(model={"kind": "mlp", "hidden": [8]}),
            r"model.hidden is \[16\] in the earlier training, and \[8\] in this trial",
        ),
        (with_workload(precision="fp64"), r"precision is fp32 in the earlier training, and fp64 in this trial"),
        (
            {"seed": 2},
            r"seed is 1 in the earlier training, and 2 in this trial; both trainings must have",
        ),
        (
            {"strategies": {"ps": {"kind": "parameter_server"}}},
            r"strategy ps can't continue the earlier trial: strategy.kind is all_reduce in the earlier training, and",
        ),
        (
            {"strategies": {"local": {"kind": "local_sgd", "period": 5}}},
            r"strategy.kind is all_reduce in the earlier training, and local_sgd in this trial",
        ),
        (
            with_workload(partition={"kind": "shards", "per_worker": 2})
            | {"cluster": SCENARIO["cluster"] | {"workers": 2}},
            r"each of the 4 workers owns a part of the samples, and 2 workers need other parts; use 4 workers",
        ),
        ({"repeats": 2}, r"its checkpoint has one seed, and the scenario has 2 repeats; write repeats: 1"),
        ({"baseline": True}, r"the baseline can't continue the earlier trial: .*; or write baseline: false"),
        (
            {"sweep": {"recovery.checkpoint.initial": ["a/b"]}},
            r"a/b is a relative path; write an absolute path in a sweep",
        ),
    ],
    ids=repr,
)
def test_another_training_is_rejected_with_the_property_that_differs(
    earlier: Path, tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    path = tmp_path / "continued.yaml"
    path.write_text(yaml.safe_dump(continued_scenario(earlier) | keys))

    with pytest.raises(ScenarioError, match=message) as error:
        load_scenario(path, engine="simulated")

    assert "recovery.checkpoint.initial: " in str(error.value)
    assert f"{path}:" in str(error.value)
