"""Tests of every kind of dataset in users' code: the host runs the code, and nodes read the same samples."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import yaml
from data_files import declared_dataset, scenario_of
from own_datasets import OWN_DATA, OWN_DATA_EXAMPLES, OwnDataExample

from compose.data_files.preparation import PREPARERS, prepared_data_folder
from compose.own_code.dataset_preparation import PART_READERS
from compose.scenario_files.load import load_scenario
from services.cluster.addresses import DummyAddresses
from services.learning.datasets import PreparedDataset
from services.learning.datasets.own import AnyOwnDataset
from services.learning.own_code import call_user_object
from services.node.simulate import simulate_trial
from services.plan import Plan, decode_plan, make_plan

every_example = pytest.mark.parametrize("example", OWN_DATA_EXAMPLES.values(), ids=OWN_DATA_EXAMPLES)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a user's code; copies and prepared data go to a cache of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    shutil.copytree(OWN_DATA, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def write_scenario(folder: Path, example: OwnDataExample, **more_keys: Any) -> Path:
    path = folder / "mine.yaml"
    model = {"kind": example.model}
    path.write_text(yaml.safe_dump(scenario_of(example.keys | more_keys, workload={"model": model})))
    return path


def plan_of(path: Path) -> Plan:
    (trial,) = load_scenario(path).trials()
    return make_plan(trial, "run", "simulated", DummyAddresses())


def test_table_contains_every_kind_and_every_kind_has_a_reader() -> None:
    """A kind that is not in the table is not tested."""
    kinds = {kind.model_fields["kind"].default for kind in get_args(AnyOwnDataset)}

    assert kinds == {example.keys["kind"] for example in OWN_DATA_EXAMPLES.values()} == set(PART_READERS)
    assert kinds <= set(PREPARERS)


@every_example
def test_the_task_follows_from_the_samples_and_the_keys(folder: Path, example: OwnDataExample) -> None:
    """Models are built from the task; rows have its shapes and types in both precisions."""
    dataset = declared_dataset(load_scenario(write_scenario(folder, example)))
    task, train_samples, test_samples = dataset.describe()
    number_type = np.dtype(np.int64) if example.loss == "next_token" else None

    assert (task.inputs, task.outputs, task.loss) == (example.inputs, example.outputs, example.loss)
    assert (train_samples, test_samples) == (example.train_samples, example.test_samples)
    for dtype in ("float32", "float64"):
        data = dataset.load(dtype)
        for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
            assert x[:].dtype == (number_type or np.dtype(dtype))
            assert x[:2].shape == (2, *task.inputs)
            assert y[:].dtype == (np.dtype(dtype) if task.loss == "mse" else np.dtype(np.int64))
            assert y.shape[1:] == {"mse": (task.outputs,), "next_token": task.inputs, "cross_entropy": ()}[task.loss]


@every_example
def test_a_trial_trains_without_the_users_files(folder: Path, example: OwnDataExample) -> None:
    """Nodes load the prepared arrays; the code is not run again."""
    plan = plan_of(write_scenario(folder, example))
    restored = decode_plan(plan.model_dump_json())
    shutil.rmtree(folder)
    lines: list[str] = []

    simulate_trial(restored, lambda node: lines.append if node == "coordinator" else lambda _: None)

    assert isinstance(restored.dataset, PreparedDataset)
    assert restored.dataset.declared_kind == example.keys["kind"]
    assert any('"run_stop"' in line and '"success"' in line for line in lines)


@every_example
def test_equal_code_and_arguments_are_prepared_once(folder: Path, example: OwnDataExample) -> None:
    """Also in another folder; other arguments and other code are prepared anew."""
    plan_of(write_scenario(folder, example))
    shutil.copytree(folder, folder.parent / "copy")
    plan_of(folder.parent / "copy" / "mine.yaml")
    assert len([*prepared_data_folder().iterdir()]) == 1

    for path in folder.glob("*.py"):
        path.write_text(path.read_text() + "\n# changed\n")
    plan_of(folder / "mine.yaml")
    assert len([*prepared_data_folder().iterdir()]) == 2

    plan_of(write_scenario(folder, example, seed=5))
    assert len([*prepared_data_folder().iterdir()]) == 3


@every_example
def test_a_resolved_scenario_is_loaded_again_without_the_users_files(folder: Path, example: OwnDataExample) -> None:
    """A run can be resumed while its code and prepared data are in the cache."""
    scenario = load_scenario(write_scenario(folder, example))
    resolved = json.loads(json.dumps(scenario.encode()))
    shutil.rmtree(folder)

    assert load_scenario(resolved) == scenario


def test_samples_are_those_that_the_function_returns(folder: Path) -> None:
    """Nothing is scaled or shuffled."""
    dataset = declared_dataset(load_scenario(write_scenario(folder, OWN_DATA_EXAMPLES["classes"])))
    expected = call_user_object(dataset.module, **dataset.arguments)
    data = dataset.load("float64")

    for rows, array in zip((data.train_x, data.train_y, data.test_x, data.test_y), expected, strict=True):
        np.testing.assert_array_equal(rows[:], array)


def test_samples_are_the_items_in_their_order(folder: Path) -> None:
    """As a data loader of PyTorch without shuffling reads them."""
    dataset = declared_dataset(load_scenario(write_scenario(folder, OWN_DATA_EXAMPLES["train parameter"])))
    data = dataset.load("float32")
    for train, x, y in ((True, data.train_x, data.train_y), (False, data.test_x, data.test_y)):
        items = call_user_object(dataset.module, train=train)
        np.testing.assert_array_equal(x[:], np.stack([items[k][0] for k in range(len(items))]))
        np.testing.assert_array_equal(y[:], np.stack([items[k][1] for k in range(len(items))]))


def test_code_reads_declared_files_and_their_content_counts(folder: Path) -> None:
    """The code runs in a copy of its folder, which has no data files."""
    (folder / "data").mkdir()
    keys = {"kind": "python", "module": "functions.py:load_table", "arguments": {"columns": 2}}
    example = OwnDataExample(keys | {"files": {"table": "data/table.txt"}}, (2,), 1, "mse", 8, 2)
    folders = []
    for factor in (1, 2):
        np.savetxt(folder / "data/table.txt", factor * np.arange(30).reshape(10, 3))
        dataset = declared_dataset(load_scenario(write_scenario(folder, example)))
        assert dataset.load("float64").train_x[:].max() == factor * 28
        folders.append(dataset.as_nodes_load_it().folder_on_nodes)

    assert folders[0] != folders[1]


def test_datasets_can_be_swept(folder: Path) -> None:
    """Arguments are hyperparameters like others."""
    path = write_scenario(folder, OWN_DATA_EXAMPLES["classes"])
    document = yaml.safe_load(path.read_text())
    sweep = {"workload.dataset.arguments.classes": [2, 3]}
    path.write_text(yaml.safe_dump(document | {"sweep": sweep}))
    trials = load_scenario(path).trials()
    modules = ["functions.py:load_classes", "functions.py:load_values"]
    document["workload"]["dataset"].pop("arguments")
    path.write_text(yaml.safe_dump(document | {"sweep": {"workload.dataset.module": modules}}))
    trials_of_modules = load_scenario(path).trials()

    assert [trial.scenario.workload.dataset.describe().task.outputs for trial in trials] == [2, 3]
    assert [trial.labels["workload.dataset.module"] for trial in trials_of_modules] == modules


def test_the_folder_of_a_dataset_does_not_replace_that_of_a_model(folder: Path) -> None:
    """A model may import files of its folder while it computes, after another dataset has been prepared."""
    shutil.copytree(OWN_DATA.parent / "own_models", folder / "model")
    document = yaml.safe_load(write_scenario(folder, OWN_DATA_EXAMPLES["values"]).read_text())
    document["workload"]["dataset"]["arguments"] = {"count": 60}
    document["workload"]["model"] = {"kind": "python", "module": "model/perceptron.py:Perceptron"}
    document["sweep"] = {"workload.dataset.arguments.count": [40, 60]}
    (folder / "mine.yaml").write_text(yaml.safe_dump(document))

    trials = load_scenario(folder / "mine.yaml").trials()

    (code_folder,) = {str(trial.scenario.workload.model.module.folder) for trial in trials}
    assert code_folder in sys.path


def test_unseeded_samples_are_accepted_if_the_check_is_off(folder: Path) -> None:
    """All nodes and trials then have the samples of one call, as long as they are in the cache."""
    (folder / "noise.py").write_text(
        "import numpy as np\ndef load():\n    x = np.random.default_rng().normal(size=(20, 2))\n    return x, x[:, 0]\n"
    )
    example = OwnDataExample({"kind": "python", "module": "noise.py:load"}, (2,), 1, "mse", 16, 4)
    path = write_scenario(folder, example, check_determinism=False)

    first, second = (declared_dataset(load_scenario(path)).load("float64").train_x[:] for _ in range(2))

    np.testing.assert_array_equal(first, second)
