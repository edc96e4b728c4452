"""A ring and a parameter server in lockstep lose as PyTorch's DistributedDataParallel over gloo does, step by step.

`tests/golden/ddp/` keeps PyTorch's curves and the program that gave them. To record them anew, for review:
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

# 1,373 samples for training: 28 go into them 49 times and leave one, so 100 steps are two epochs, and at the end of
# each all ranks but the first have no samples.
DIGITS = {"kind": "digits", "test_fraction": 0.236}
STRATEGIES = {"ring": {"kind": "all_reduce"}, "parameter server": {"kind": "parameter_server", "servers": 2}}

# A rectifier has two slopes at zero, so it makes rounding large: in fp32 even one worker and two of ours can part by
# 0.05. The rounding of fp64 stays small, and so does that of fp32 where slopes are smooth.
SMOOTH = {"model": {"kind": "lenet5", "activation": "tanh"}, "precision": "fp32"}
RECTIFIED = {"model": {"kind": "lenet5", "activation": "relu"}, "precision": "fp64"}
CASES: dict[str, tuple[int, dict[str, Any]]] = {  # 28 samples are 14 + 14, 10 + 9 + 9, 6 + 6 + 6 + 5 + 5
    "sgd": (2, SMOOTH | {"optimiser": {"kind": "sgd", "rate": 0.1, "weight_decay": 0.001}}),
    "momentum": (3, SMOOTH | {"optimiser": {"kind": "momentum", "rate": 0.01}}),
    "adam": (5, SMOOTH | {"optimiser": {"kind": "adam", "rate": 0.002}}),
    "relu": (3, RECTIFIED | {"optimiser": {"kind": "momentum", "rate": 0.01}}),
}

every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture
def kept(pytestconfig: pytest.Config, case: str) -> Path:
    """The curve that PyTorch gave."""
    return pytestconfig.rootpath / "tests" / "golden" / "ddp" / f"{case}.json"


@every_case
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_lockstep_has_the_loss_curve_of_pytorch(
    rehearse: Callable[..., Any], strategy: dict[str, Any], case: str, kept: Path
) -> None:
    """Whoever compares strategies here wants to know what they would do there: the same training, step by step."""
    recorded, settings = json.loads(kept.read_text()), settings_of(case)

    done = rehearse(strategy, settings["workers"], seed=SEED, **workload(case).model_dump())

    assert recorded["settings"] == settings
    assert done.plan.is_synchronous
    assert len(recorded["losses"]) == done.plan.steps == STEPS
    np.testing.assert_allclose(curve(done), recorded["losses"], rtol=0, atol=TOLERANCE[settings["precision"]])


@every_case
def test_pytorch_still_has_the_curve_that_is_kept(
    case: str, kept: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A curve that nobody can record again proves nothing."""
    python = os.environ.get("ENSAYO_TORCH")
    if not python:
        pytest.skip("needs PyTorch: ENSAYO_TORCH names an interpreter that has it, as in .venv-torch/bin/python")
    np.savez(tmp_path / "case.npz", **exported(case))

    subprocess.run([python, kept.with_name("train.py"), tmp_path / "case.npz", tmp_path / "curve.json"], check=True)

    written = (tmp_path / "curve.json").read_text()
    if pytestconfig.getoption("--rewrite"):
        kept.write_text(written)
    now, before = json.loads(written), json.loads(kept.read_text())
    assert now["settings"] == before["settings"] == settings_of(case)
    tolerance = TOLERANCE[before["settings"]["precision"]]
    np.testing.assert_allclose(now["losses"], before["losses"], rtol=0, atol=tolerance)


def test_kept_curves_fall_and_differ_so_that_equality_means_something(pytestconfig: pytest.Config) -> None:
    """Curves that stay at ln 10 would agree whatever anybody computed."""
    files = [pytestconfig.rootpath / "tests" / "golden" / "ddp" / f"{case}.json" for case in CASES]
    curves = [np.array(json.loads(file.read_text())["losses"]) for file in files]

    assert all(losses[:10].mean() > 2 * losses[-10:].mean() for losses in curves)
    assert all(np.abs(one - other).max() > 0.1 for one, other in combinations(curves, 2))


def workload(case: str) -> Workload:
    """What a case trains."""
    _, parts = CASES[case]
    return Workload.model_validate({"dataset": DIGITS, "batch": 28, "epochs": 2, **parts})


def settings_of(case: str) -> dict[str, Any]:
    """All that decides a case's curve."""
    workers, _ = CASES[case]
    return {"workers": workers, "seed": SEED, "steps": STEPS, **workload(case).model_dump(mode="json")}


def exported(case: str) -> dict[str, HostArray]:
    """What both sides begin with: samples, parameters, and every rank's share of every step, one after the other."""
    work, settings = workload(case), settings_of(case)
    ranks, dtype = settings["workers"], DTYPE_BY_PRECISION[work.precision]
    data = work.dataset.load(dtype)
    order = DataOrder(samples=len(data.train_x), batch=work.global_batch_size(ranks), seed=SEED)
    shares = [order.rank_sample_indices(step, rank, (1,) * ranks) for step, rank in product(range(STEPS), range(ranks))]
    return {
        "settings": np.array(json.dumps(settings)),
        "x": data.train_x,
        "y": data.train_y,
        "params": work.model.init_parameters(data.task, SEED, dtype),
        "shares": np.concatenate(shares),
        "counts": np.array([len(share) for share in shares]).reshape(STEPS, ranks),
    }


def curve(done: Any) -> HostArray:
    """The mean loss over all samples of each step, shape (steps,), from the means that workers logged."""
    steps = [done.steps(rank) for rank in range(done.plan.workers)]
    losses, samples = (np.array([[row[key] for row in rows] for rows in steps]) for key in ("loss", "samples"))
    return np.asarray((losses * samples).sum(axis=0) / samples.sum(axis=0))
