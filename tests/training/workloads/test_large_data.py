"""Training on data that are larger than the memory of a node."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from data_files import scenario_of, write_idx

SAMPLES, SIDE = 80_000, 64  # 328 MB of pixels
ALLOWED_BYTES = 64 << 20  # of memory beyond that of the program itself: a fifth of the data

# Trains on the scenario in the first argument. The second argument is the memory that it may use; the limit is set
# when all modules are loaded. With a third argument, all samples are loaded into memory first.
PROGRAM = """
import re, resource, sys
from pathlib import Path
from compose.scenario_files.load import load_scenario
from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial
from services.plan import make_plan

(trial,) = load_scenario(Path(sys.argv[1])).trials()
plan = make_plan(trial, "run", "simulated", DummyAddresses())
used_kb = int(re.search(r"VmData:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
limit = 1024 * used_kb + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
if len(sys.argv) > 3:
    samples = plan.dataset.load("float32").train_x[:]
lines = []
simulate_trial(plan, lambda node: lines.append)
print(*(line for line in lines if "run_stop" in line or "eval_metrics" in line))
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a scenario whose data need 328 MB; they are prepared in the folder `cache` beside it."""
    folder = tmp_path_factory.mktemp("large")
    labels = np.arange(SAMPLES) % 4
    pixels = np.random.default_rng(0).integers(0, 200, (SAMPLES, SIDE, SIDE), dtype=np.uint8)
    pixels[np.arange(SAMPLES), labels] += 55  # the class is a bright row
    write_idx(folder / "x", pixels)
    write_idx(folder / "y", labels.astype(np.uint8))
    keys = {"kind": "idx", "path": "x", "labels": "y"}
    workload: dict[str, Any] = {"batch": 400, "epochs": 1, "order": {"kind": "shuffled_blocks", "block": 5000}}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(scenario_of(keys, workload=workload)))
    return path


def train(scenario: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"XDG_CACHE_HOME": str(scenario.parent / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(scenario), str(ALLOWED_BYTES), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_DATA"), reason="this system has no limit of private memory")
def test_a_process_trains_on_data_five_times_larger_than_its_memory(scenario: Path) -> None:
    """Steps and evaluations read their samples from the memory-mapped arrays; both workers share this process."""
    trained, in_memory = train(scenario), train(scenario, "all samples in memory")

    assert trained.returncode == 0, trained.stderr
    assert '"status": "success"' in trained.stdout
    assert "MemoryError" in in_memory.stderr  # the limit has an effect
