"""The same models in PyTorch give the same numbers; `pytorch.py` recorded them."""

import numpy as np
import pytest

from services.learning.datasets import LearningTask
from services.learning.models import LeNet5, Mlp, Model
from services.learning.optimisers import Adam, AdamW, Momentum, Optimiser, Sgd
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray

STRIDE = 31
UPDATES = 7
PICTURES = LearningTask(inputs=(1, 8, 8), outputs=10, loss="cross_entropy")
NUMBERS = LearningTask(inputs=(5,), outputs=3, loss="mse")


def sines(*shape: int) -> HostArray:
    """sin(i) at entry i, in row-major order."""
    return np.sin(np.arange(np.prod(shape), dtype="float64")).reshape(shape)


@pytest.fixture(scope="module")
def recorded(pytestconfig: pytest.Config) -> dict[str, HostArray]:
    """PyTorch's results as `case/result`."""
    with np.load(pytestconfig.rootpath / "tests" / "golden" / "pytorch.npz") as file:
        return dict(file)


TARGETS = {"cross_entropy": np.array([3, 1, 4, 1]), "mse": sines(4, 3)}


@pytest.mark.parametrize(
    ("case", "model", "task"),
    [
        ("lenet5_relu", LeNet5(activation="relu"), PICTURES),
        ("lenet5_tanh", LeNet5(activation="tanh"), PICTURES),
        ("mlp_relu", Mlp(hidden=(32,), activation="relu"), PICTURES),
        ("mlp_tanh", Mlp(hidden=(9, 7), activation="tanh"), NUMBERS),
    ],
)
def test_losses_and_gradients_equal_those_of_pytorch(
    case: str, model: Model, task: LearningTask, recorded: dict[str, HostArray], device: ComputeDevice
) -> None:
    """Finite differences show that the gradient fits our loss; this test shows that the loss is the usual one."""
    params = device.to_device(0.1 * sines(model.parameter_layout(task).parameter_count))
    x, y = device.to_device(sines(4, *task.inputs)), device.to_device(TARGETS[task.loss])

    loss, grad = model.loss_and_grad(task, params, x, y)

    assert loss == pytest.approx(float(recorded[f"{case}/loss"]), rel=1e-10)
    np.testing.assert_allclose(device.to_host(grad)[::STRIDE], recorded[f"{case}/grad"], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("case", "optimiser"),
    [
        ("sgd", Sgd(rate=0.1, weight_decay=0.01)),
        ("momentum", Momentum(rate=0.1, momentum=0.9, weight_decay=0.01)),
        ("nesterov", Momentum(rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
        ("adam", Adam(rate=0.1, beta1=0.8, beta2=0.95, epsilon=1e-8, weight_decay=0.01)),
        ("adamw", AdamW(rate=0.1, beta1=0.8, beta2=0.95, epsilon=1e-8, weight_decay=0.2)),
    ],
)
def test_updates_equal_those_of_pytorch(
    case: str, optimiser: Optimiser, recorded: dict[str, HostArray], device: ComputeDevice
) -> None:
    """A learning rate found with PyTorch has the same effect here."""
    params = device.to_device(sines(12))
    state = optimiser.init_state(params)

    for t in range(UPDATES):
        params, state = optimiser.update_params(params, device.to_device(np.cos(np.arange(12.0) + t)), state)

    np.testing.assert_allclose(device.to_host(params), recorded[f"{case}/params"], rtol=1e-12)
