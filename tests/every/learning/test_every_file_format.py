"""Tests of every format of data files: each is read, checked and prepared; nodes then read the same samples."""

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import yaml
from data_files import SMALL_FILES, SmallFile, declared_dataset, scenario_of

from compose.data_files.preparation import PREPARERS, prepared_data_folder
from compose.scenario_files.load import load_scenario
from services.cluster.addresses import DummyAddresses
from services.learning.datasets import PreparedDataset
from services.learning.datasets.files import AnyFileDataset, FileDataset
from services.learning.datasets.own import AnyOwnDataset
from services.learning.datasets.split import random_split, stratified_split
from services.node.simulate import simulate_trial
from services.plan import Plan, decode_plan, make_plan
from services.schema.errors import HostError, UserError

every_format = pytest.mark.parametrize("kind", SMALL_FILES)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for scenario and data; prepared data go to a cache of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def write_scenario(folder: Path, keys: dict[str, Any], **changes: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(scenario_of(keys, **changes)))
    return path


def load_dataset(folder: Path, kind: str, **more_keys: Any) -> tuple[FileDataset, SmallFile]:
    """Return the dataset of a scenario with a small file of this format, and the file."""
    small = SMALL_FILES[kind](folder)
    return declared_dataset(load_scenario(write_scenario(folder, small.keys | more_keys))), small


def plan_of(path: Path) -> Plan:
    (trial,) = load_scenario(path).trials()
    return make_plan(trial, "run", "simulated", DummyAddresses())


def test_table_contains_every_format_and_every_format_has_a_reader() -> None:
    """A format that is not in the table is not tested."""
    kinds = {kind.model_fields["kind"].default for kind in get_args(AnyFileDataset)}

    own_kinds = {kind.model_fields["kind"].default for kind in get_args(AnyOwnDataset)}

    assert kinds == set(SMALL_FILES) == set(PREPARERS) - own_kinds


@every_format
def test_samples_are_those_of_the_file(folder: Path, kind: str) -> None:
    """Split as the datasets that come with Ensayo, with the same seed; a text is cut at one place."""
    dataset, small = load_dataset(folder, kind)
    data = dataset.load("float64")
    if kind == "text":
        train, test = np.arange(len(data.train_x)), np.arange(len(small.y) - len(data.test_x), len(small.y))
    elif small.y.ndim == 1:
        train, test = stratified_split(small.y, 0.2, 0)
    else:
        train, test = random_split(len(small.y), 0.2, 0)
    x, y = small.x, small.y
    if small.is_standardised:
        x, y = ((part - part[train].mean(axis=0)) / part[train].std(axis=0) for part in (x, y))

    for rows, expected in (
        (data.train_x, x[train]),
        (data.train_y, y[train]),
        (data.test_x, x[test]),
        (data.test_y, y[test]),
    ):
        assert rows.shape == expected.shape
        np.testing.assert_allclose(rows[:], expected, rtol=1e-12, atol=1e-12)


@every_format
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_selected_rows_have_the_shapes_and_types_of_the_task(folder: Path, kind: str, dtype: str) -> None:
    """Models are built from the task before they receive a sample; shares of a batch may be empty."""
    dataset, _ = load_dataset(folder, kind)
    data, (task, train_samples, test_samples) = dataset.load(dtype), dataset.describe()

    assert (len(data.train_x), len(data.test_x)) == (train_samples, test_samples)
    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        for rows in (slice(0, 2), np.array([1, 0, 1]), np.empty(0, np.int64), slice(None)):
            assert type(x[rows]) is np.ndarray
            assert x[rows].shape == (len(y[rows]), *task.inputs)
            assert x[rows].dtype == x.dtype == np.dtype(dtype)
            assert y[rows].dtype == y.dtype == {"cross_entropy": np.int64, "mse": np.dtype(dtype)}[task.loss]
            assert y[rows].shape[1:] == y.shape[1:] == {"cross_entropy": (), "mse": (task.outputs,)}[task.loss]


@every_format
def test_plans_have_the_prepared_samples_in_place_of_the_file(folder: Path, kind: str) -> None:
    """Nodes have NumPy only, and read the plan as JSON; path, digest and sizes are recorded."""
    small = SMALL_FILES[kind](folder)
    plan = plan_of(write_scenario(folder, small.keys))
    restored = decode_plan(plan.model_dump_json())

    assert restored.dataset == plan.dataset
    assert isinstance(plan.dataset, PreparedDataset)
    assert plan.dataset.source.path.file == str(folder / small.keys["path"])
    assert len(plan.dataset.source.path.sha256 or "") == 64
    assert plan.dataset.arrays.stored_bytes == sum(
        path.stat().st_size for path in Path(plan.dataset.folder).glob("*.npy")
    )
    assert plan.dataset.declared_kind == kind


@every_format
def test_a_trial_trains_without_the_original_file(folder: Path, kind: str) -> None:
    """The file may be moved or changed after the scenario was loaded."""
    plan = plan_of(write_scenario(folder, SMALL_FILES[kind](folder).keys))
    shutil.rmtree(folder)
    lines: list[str] = []

    simulate_trial(plan, lambda node: lines.append if node == "coordinator" else lambda _: None)

    assert any('"run_stop"' in line and '"success"' in line for line in lines)


@every_format
def test_a_resolved_scenario_is_loaded_again_without_the_file(folder: Path, kind: str) -> None:
    """A run can be resumed while its prepared data are in the cache."""
    path = write_scenario(folder, SMALL_FILES[kind](folder).keys)
    scenario = load_scenario(path)
    resolved = json.loads(json.dumps(scenario.encode()))
    shutil.rmtree(folder)

    assert load_scenario(resolved) == scenario


@every_format
def test_equal_content_is_prepared_once_and_other_keys_anew(folder: Path, kind: str) -> None:
    """Preparation takes time, and a changed key must have an effect."""
    first, _ = load_dataset(folder, kind)
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    same = declared_dataset(load_scenario(copy / "mine.yaml"))
    other, _ = load_dataset(folder, kind, test_fraction=0.3)

    folders = [dataset.as_nodes_load_it().folder_on_nodes for dataset in (first, same, other)]

    assert folders[0] == folders[1] != folders[2]
    assert len([*prepared_data_folder().iterdir()]) == 2


@every_format
def test_changed_content_gives_other_samples(folder: Path, kind: str) -> None:
    """Also within one process, such as a notebook: results must be those of the current file."""
    _, small = load_dataset(folder, kind)
    before = load_scenario(folder / "mine.yaml")
    if kind == "images":
        next((folder / small.keys["path"]).rglob("*.png")).unlink()
    elif kind in ("csv", "text"):
        content = (folder / small.keys["path"]).read_text()
        (folder / small.keys["path"]).write_text(content + content.splitlines()[-1] + "\n")
    else:
        content = (folder / small.keys["path"]).read_bytes()
        (folder / small.keys["path"]).write_bytes(content)
        small = SMALL_FILES[kind](folder)
        _replace_first_sample(folder, small)
    after = load_scenario(folder / "mine.yaml")

    assert declared_dataset(before).path.sha256 != declared_dataset(after).path.sha256
    folders = [declared_dataset(scenario).as_nodes_load_it().folder_on_nodes for scenario in (before, after)]
    assert folders[0] != folders[1]


def _replace_first_sample(folder: Path, small: SmallFile) -> None:
    """Write a file of the same format with other samples."""
    path = folder / small.keys["path"]
    match small.keys["kind"]:
        case "cifar10":
            content = bytearray(path.read_bytes())
            content[1] ^= 1
            path.write_bytes(bytes(content))
        case "npz":
            np.savez(path, inputs=small.x[::-1], y=small.y[:, 0])
        case "parquet":
            import pandas as pd  # noqa: PLC0415

            pd.read_parquet(path).iloc[1:].to_parquet(path)
        case "idx":
            import gzip  # noqa: PLC0415

            path.write_bytes(gzip.decompress(path.read_bytes()))


@every_format
def test_a_missing_file_is_reported_at_its_line(folder: Path, kind: str) -> None:
    """Before anything starts."""
    small = SMALL_FILES[kind](folder)
    path = write_scenario(folder, small.keys | {"path": "nothing/here"})

    with pytest.raises(UserError, match=r"mine\.yaml:\d+: workload\.dataset\.path: .*nothing/here: file not found"):
        load_scenario(path)


@every_format
def test_a_damaged_cache_is_an_error_that_states_the_remedy(folder: Path, kind: str) -> None:
    """For example after a full disk."""
    dataset, _ = load_dataset(folder, kind)
    prepared = dataset.as_nodes_load_it()
    array = Path(str(prepared.folder_on_nodes)) / "train_x.npy"
    array.write_bytes(array.read_bytes()[:-1])

    with pytest.raises(HostError, match=r"train_x\.npy: the prepared data can't be read .*; delete the folder"):
        prepared.load("float32")


@every_format
def test_a_leftover_of_a_killed_process_is_not_used(folder: Path, kind: str) -> None:
    """A folder without its description is incomplete."""
    dataset, _ = load_dataset(folder, kind)
    prepared_folder = Path(str(dataset.as_nodes_load_it().folder_on_nodes))
    (prepared_folder / "prepared.json").unlink()
    (prepared_folder / "train_x.npy").write_bytes(b"")

    data = dataset.load("float32")

    assert len(data.train_x) == dataset.describe().train_samples


@every_format
def test_pickled_objects_are_never_read(folder: Path, kind: str) -> None:
    """Reading them would execute code of the file."""
    dataset, _ = load_dataset(folder, kind)
    prepared = dataset.as_nodes_load_it()
    np.save(Path(str(prepared.folder_on_nodes)) / "train_x.npy", np.array([{"object": 1}], object), allow_pickle=True)

    with pytest.raises(HostError, match="can't be read"):
        prepared.load("float32")
