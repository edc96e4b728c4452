"""Every model of the compute benchmark trains like its counterpart in PyTorch: gradients, loss curves, operations."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402 - after the check for PyTorch
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from benchmarks.compute.batches import SEED, FloatType, training_batches  # noqa: E402
from benchmarks.compute.cases import CASES, ComputeCase  # noqa: E402
from benchmarks.compute.torch_training import TorchTraining, build_counterpart, flatten_gradients  # noqa: E402
from benchmarks.compute.training import EnsayoTraining  # noqa: E402
from services.learning.models import ResNet  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 50
CURVE_TOLERANCE = 1e-8
TEST_CASES = CASES | {
    "resnet8 with group normalisation": replace(CASES["resnet8"], model=ResNet(depth=8, norm="group")),
}

every_case = pytest.mark.parametrize("case", TEST_CASES.values(), ids=TEST_CASES)


@every_case
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_gradients_equal_those_of_pytorch(case: ComputeCase, dtype: FloatType, tolerance: float) -> None:
    """One step of both, from the same parameters, on the same small batch.

    With many samples, some input of a rectifier is so close to zero that rounding in fp32 decides the slope.
    """
    case = replace(case, batch=8)
    data = case.dataset.load(dtype)
    x, y, randomness = next(training_batches(case, data))
    params = case.model.init_parameters(data.task, SEED, dtype)
    training = TorchTraining(case, dtype)

    expected_loss = training.run_step()
    loss, gradient = case.model.loss_and_grad(data.task, params, x, y, randomness)

    expected = flatten_gradients(training.module)
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    assert np.linalg.norm(gradient - expected) <= tolerance * np.linalg.norm(expected)


@every_case
def test_loss_curves_equal_those_of_pytorch(case: ComputeCase) -> None:
    """Settings found with PyTorch must have the same effect here, over many updates.

    The comparison is in fp64. In fp32, rectifiers amplify rounding: within 50 steps, losses of PyTorch in fp32 and of
    PyTorch in fp64 differ by up to 11 % (lenet5) and 36 % (resnet20).
    """
    ours, theirs = EnsayoTraining(case, "float64"), TorchTraining(case, "float64")

    losses = np.array([[training.run_step() for training in (ours, theirs)] for _ in range(STEPS)])

    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=CURVE_TOLERANCE)
    assert losses[-1, 0] < losses[0, 0]


@every_case
def test_operations_equal_those_that_pytorch_counts(case: ComputeCase) -> None:
    """Compute times of devices and utilisation are derived from operations."""
    data = case.dataset.load("float32")
    module = build_counterpart(case.model, data.task)
    x, y, randomness = next(training_batches(case, data))
    inputs, _ = case.model.draw_inputs_and_targets(data.task, x, y, randomness)
    # The counter does not know the fused attention of the CPU.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(torch.tensor(inputs))

    assert case.batch * sum(case.model.forward_flops(data.task).values()) == counter.get_total_flops()
