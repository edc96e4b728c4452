"""Containers whose memory is smaller than the data."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import yaml
from data_files import scenario_of, write_idx

from compose.scenario_files.load import load_scenario
from services.scenario.scenario import Scenario

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

RunTrial: TypeAlias = Callable[..., Any]

SAMPLES, SIDE, MEMORY_MIB = 200_000, 64, 160


def _drop_from_page_cache(scenario: Scenario) -> None:
    """Let the kernel forget the prepared samples, so that it counts them as memory of the containers that read them."""
    for array in Path(str(scenario.workload.dataset.as_nodes_load_it().folder_on_nodes)).glob("*.npy"):
        with array.open("rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.slow
def test_workers_train_on_data_larger_than_their_memory(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops pages of the memory-mapped samples; it would kill a worker that holds all samples."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    labels = np.arange(SAMPLES) % 4
    pixels = np.random.default_rng(0).integers(0, 200, (SAMPLES, SIDE, SIDE), dtype=np.uint8)
    pixels[np.arange(SAMPLES), labels] += 55  # the class is a bright row
    write_idx(tmp_path / "x", pixels)
    write_idx(tmp_path / "y", labels.astype(np.uint8))
    workload = {"batch": 1000, "epochs": 1, "order": {"kind": "shuffled_blocks", "block": 20_000}}
    cluster = {"workers": 2, "worker": {"memory": f"{MEMORY_MIB}MiB"}}
    keys = {"kind": "idx", "path": "x", "labels": "y"}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(scenario_of(keys, workload=workload, cluster=cluster)))
    _drop_from_page_cache(load_scenario(path))

    trial = run_trial("docker", path, "ring")

    assert trial.plan.dataset.arrays.stored_bytes > 4 * MEMORY_MIB << 20
    assert sum(row["samples"] for rank in (0, 1) for row in trial.rows(f"worker-{rank}", "node_steps")) == 160_000
    assert trial.value("coordinator", "eval_metrics")["accuracy"] > 0.5
