"""A ring and a synchronous parameter server have the loss curves of PyTorch's DistributedDataParallel over gloo.

`tests/golden/ddp/` has PyTorch's curves and the program that recorded them. To record them again, for review:
`ENSAYO_TORCH=/path/to/python pytest tests/training/test_ddp.py --rewrite`, with an interpreter that has PyTorch.
"""

import json
import os
import subprocess
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.learning.data_order import DataOrder
from services.plan.cost import DTYPE_BY_PRECISION
from services.scenario.workload import Workload
from services.schema.arrays import HostArray

STEPS = 100
SEED = 1
TOLERANCE = {"fp32": 1e-5, "fp64": 1e-9}  # of a step's loss, a mean in nats; measured: 5e-7 and 6e-15

# 1,373 training samples are 49 batches of 28 and one of a single sample, so 100 steps are two epochs, and in the last
# step of each epoch all ranks but the first have no samples.
DIGITS = {"kind": "digits", "test_fraction": 0.236}
STRATEGIES = {"ring": {"kind": "all_reduce"}, "parameter server": {"kind": "parameter_server", "servers": 2}}

# A rectifier has two slopes at zero, which amplifies rounding: in fp32 even the losses of one and of two of our workers
# can differ by 0.05. Rounding errors stay small in fp64, and in fp32 with smooth activations.
SMOOTH = {"model": {"kind": "lenet5", "activation": "tanh"}, "precision": "fp32"}
RECTIFIED = {"model": {"kind": "lenet5", "activation": "relu"}, "precision": "fp64"}
CASES: dict[str, tuple[int, dict[str, Any]]] = {  # 28 samples are 14 + 14, 10 + 9 + 9, 6 + 6 + 6 + 5 + 5
    "sgd": (2, SMOOTH | {"optimiser": {"kind": "sgd", "rate": 0.1, "weight_decay": 0.001}}),
    "momentum": (3, SMOOTH | {"optimiser": {"kind": "momentum", "rate": 0.01}}),
    "adam": (5, SMOOTH | {"optimiser": {"kind": "adam", "rate": 0.002}}),
    "relu": (3, RECTIFIED | {"optimiser": {"kind": "momentum", "rate": 0.01}}),
}
# Of a workload. Keys that are newer than the recorded curves have their default values.
RECORDED_KEYS = {
    *("dataset", "model", "optimiser", "batch", "batch_per_worker", "epochs", "target", "stop", "precision")
}

every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture
def recorded_curve(pytestconfig: pytest.Config, case: str) -> Path:
    """Path of the loss curve that PyTorch gave."""
    return pytestconfig.rootpath / "tests" / "golden" / "ddp" / f"{case}.json"


@every_case
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_synchronous_training_has_the_loss_curve_of_pytorch(
    simulate: Callable[..., Any], strategy: dict[str, Any], case: str, recorded_curve: Path
) -> None:
    """Results of strategies here are meant to hold for PyTorch: the training must be the same, step by step."""
    expected, settings = json.loads(recorded_curve.read_text()), settings_of(case)

    trial = simulate(strategy, settings["workers"], seed=SEED, **workload(case).model_dump())

    assert expected["settings"] == settings
    assert trial.plan.is_synchronous
    assert len(expected["losses"]) == trial.plan.steps == STEPS
    np.testing.assert_allclose(loss_curve(trial), expected["losses"], rtol=0, atol=TOLERANCE[settings["precision"]])


@every_case
def test_pytorch_reproduces_the_recorded_curve(
    case: str, recorded_curve: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A recorded curve is evidence only if it can be recorded again."""
    python = os.environ.get("ENSAYO_TORCH")
    if not python:
        pytest.skip("needs PyTorch: ENSAYO_TORCH names an interpreter that has it, as in .venv-torch/bin/python")
    np.savez(tmp_path / "case.npz", **initial_data(case))

    script = recorded_curve.with_name("train.py")
    subprocess.run([python, script, tmp_path / "case.npz", tmp_path / "curve.json"], check=True)

    written = (tmp_path / "curve.json").read_text()
    if pytestconfig.getoption("--rewrite"):
        recorded_curve.write_text(written)
    actual, expected = json.loads(written), json.loads(recorded_curve.read_text())
    assert actual["settings"] == expected["settings"] == settings_of(case)
    tolerance = TOLERANCE[expected["settings"]["precision"]]
    np.testing.assert_allclose(actual["losses"], expected["losses"], rtol=0, atol=tolerance)


def test_recorded_curves_fall_and_differ_from_each_other(pytestconfig: pytest.Config) -> None:
    """Curves that stay at ln 10 would be equal for any computed gradient."""
    paths = [pytestconfig.rootpath / "tests" / "golden" / "ddp" / f"{case}.json" for case in CASES]
    curves = [np.array(json.loads(path.read_text())["losses"]) for path in paths]

    assert all(losses[:10].mean() > 2 * losses[-10:].mean() for losses in curves)
    assert all(np.abs(first - second).max() > 0.1 for first, second in combinations(curves, 2))


def workload(case: str) -> Workload:
    """Return the workload of a case."""
    _, parts = CASES[case]
    return Workload.model_validate({"dataset": DIGITS, "batch": 28, "epochs": 2, **parts})


def settings_of(case: str) -> dict[str, Any]:
    """Return all settings that determine the curve of a case."""
    workers, _ = CASES[case]
    workload_settings = workload(case).model_dump(mode="json", include=RECORDED_KEYS)
    return {"workers": workers, "seed": SEED, "steps": STEPS, **workload_settings}


def initial_data(case: str) -> dict[str, HostArray]:
    """Return the input of both sides: samples, initial parameters, and the share of every rank in every step."""
    work, settings = workload(case), settings_of(case)
    ranks, dtype = settings["workers"], DTYPE_BY_PRECISION[work.precision]
    data = work.dataset.load(dtype)
    order = DataOrder(samples=len(data.train_x), batch=work.global_batch_size(ranks), seed=SEED)
    shares = [
        order.select_sample_indices(step, rank, (1,) * ranks) for step, rank in product(range(STEPS), range(ranks))
    ]
    return {
        "settings": np.array(json.dumps(settings)),
        "x": data.train_x,
        "y": data.train_y,
        "params": work.model.init_parameters(data.task, SEED, dtype),
        "shares": np.concatenate(shares),
        "counts": np.array([len(share) for share in shares]).reshape(STEPS, ranks),
    }


def loss_curve(trial: Any) -> HostArray:
    """Return the mean loss over all samples of each step, shape (steps,), from the means that workers logged."""
    steps = [trial.steps(rank) for rank in range(trial.plan.workers)]
    losses, samples = (np.array([[row[key] for row in rows] for rows in steps]) for key in ("loss", "samples"))
    return np.asarray((losses * samples).sum(axis=0) / samples.sum(axis=0))
