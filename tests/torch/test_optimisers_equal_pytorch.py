"""Optimisers and learning-rate schedules train like those of PyTorch."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.optim import lr_scheduler  # noqa: E402 - after the check for PyTorch

from benchmarks.compute.batches import SEED, training_batches  # noqa: E402
from benchmarks.compute.cases import CASES, ComputeCase  # noqa: E402
from benchmarks.compute.torch_training import TorchTraining  # noqa: E402
from services.learning.data_order import DataOrder  # noqa: E402
from services.learning.optimisers import Adam, AdamW, Lamb, Lars, Momentum, Optimiser, Sgd  # noqa: E402
from services.learning.schedules import (  # noqa: E402
    CosineSchedule,
    LearningRateSchedule,
    LinearWarmup,
    PolynomialSchedule,
    StepSchedule,
)
from services.learning.schedules.base import TrainingBudget  # noqa: E402

pytestmark = pytest.mark.torch

STEPS, WARMUP_STEPS = 50, 10
CURVE_TOLERANCE = 1e-8  # in fp64
CASE = replace(CASES["mlp"], batch=32)
BUDGET = TrainingBudget(DataOrder(samples=STEPS * CASE.batch, batch=CASE.batch, seed=0), epochs=1)

OPTIMISERS: dict[str, Optimiser] = {
    "sgd": Sgd(rate=0.05, weight_decay=0.01),
    "momentum": Momentum(rate=0.02, momentum=0.8, weight_decay=0.01),
    "nesterov": Momentum(rate=0.02, nesterov=True),
    "adam": Adam(rate=0.002, beta1=0.8, beta2=0.99, epsilon=1e-6, weight_decay=0.01),
    "adamw": AdamW(rate=0.002, beta1=0.8, beta2=0.99, epsilon=1e-6, weight_decay=0.1),
}


def warm_up(optimiser: "torch.optim.Optimizer", start: float) -> "lr_scheduler.LRScheduler":
    """Return PyTorch's linear warm-up, which starts with the share `start` of the rate."""
    return lr_scheduler.LinearLR(optimiser, start_factor=start, end_factor=1.0, total_iters=WARMUP_STEPS)


def cosine_after_warm_up(optimiser: "torch.optim.Optimizer") -> "lr_scheduler.LRScheduler":
    """Return PyTorch's warm-up from 0.2 times the rate, and its cosine down to 0.1 times the rate."""
    cosine = lr_scheduler.CosineAnnealingLR(
        optimiser, T_max=STEPS - WARMUP_STEPS, eta_min=0.1 * optimiser.param_groups[0]["lr"]
    )
    return lr_scheduler.SequentialLR(optimiser, [warm_up(optimiser, 0.2), cosine], milestones=[WARMUP_STEPS])


SCHEDULES = {
    "linear warm-up": (
        LinearWarmup(warmup_steps=WARMUP_STEPS, warmup_start=0.1),
        lambda optimiser: warm_up(optimiser, 0.1),
    ),
    "cosine": (CosineSchedule(), lambda optimiser: lr_scheduler.CosineAnnealingLR(optimiser, T_max=STEPS)),
    "cosine after warm-up": (
        CosineSchedule(warmup_steps=WARMUP_STEPS, warmup_start=0.2, final=0.1),
        cosine_after_warm_up,
    ),
    "step": (
        StepSchedule(milestone_steps=(20, 35), factor=0.3),
        lambda optimiser: lr_scheduler.MultiStepLR(optimiser, milestones=[20, 35], gamma=0.3),
    ),
    "polynomial": (
        PolynomialSchedule(power=2),
        lambda optimiser: lr_scheduler.PolynomialLR(optimiser, total_iters=STEPS, power=2),
    ),
}


def train(case: ComputeCase, schedule: LearningRateSchedule | None = None) -> list[float]:
    """Return the losses of a training with Ensayo, whose learning rates follow the schedule."""
    data = case.dataset.load("float64")
    params = case.model.init_parameters(data.task, SEED, "float64")
    state, losses = case.optimiser.init_state(params), []
    converted = schedule and schedule.convert_steps(BUDGET)
    for step, (x, y, randomness) in zip(range(STEPS), training_batches(case, data), strict=False):
        loss, gradient = case.model.loss_and_grad(data.task, params, x, y, randomness)
        factor = converted.rate_factor(BUDGET.share_before(step)) if converted else 1.0
        params, state = case.optimiser.update_params(params, gradient, state, rate_factor=factor)
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_loss_curves_with_an_optimiser_equal_those_of_pytorch(optimiser: Optimiser) -> None:
    """Settings found with PyTorch must have the same effect here, with values that are not the defaults."""
    case = replace(CASE, optimiser=optimiser)
    theirs = TorchTraining(case, "float64")

    losses = train(case)

    np.testing.assert_allclose(losses, [theirs.run_step() for _ in range(STEPS)], rtol=CURVE_TOLERANCE)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("optimiser", [OPTIMISERS["momentum"], OPTIMISERS["adamw"]], ids=["momentum", "adamw"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_loss_curves_with_a_schedule_equal_those_of_pytorch(schedule: str, optimiser: Optimiser) -> None:
    """The rate of each step must be that of PyTorch's scheduler, which takes a step after each update."""
    ours, create_scheduler = SCHEDULES[schedule]
    case = replace(CASE, optimiser=optimiser)
    theirs, expected = TorchTraining(case, "float64"), []
    scheduler = create_scheduler(theirs.optimiser)
    for _ in range(STEPS):
        expected.append(theirs.run_step())
        scheduler.step()

    losses = train(case, ours)

    np.testing.assert_allclose(losses, expected, rtol=CURVE_TOLERANCE)
    assert not np.allclose(losses, train(case), rtol=1e-3)  # the schedule matters


@pytest.mark.parametrize("optimiser", [Lamb(rate=0.01), Lars(rate=0.01)], ids=["lamb", "lars"])
def test_an_optimiser_that_pytorch_lacks_is_an_error(optimiser: Optimiser) -> None:
    """Another optimiser in its place would be compared without notice."""
    with pytest.raises(
        ValueError, match=f"no optimiser {optimiser.kind}; cases of the benchmark may use sgd, momentum"
    ):
        TorchTraining(replace(CASE, optimiser=optimiser))
