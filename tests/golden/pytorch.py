"""Record PyTorch's losses, gradients and updates in `pytorch.npz`, so that tests can compare without PyTorch.

    python tests/golden/pytorch.py        (needs torch; recorded with 2.13.0, CPU, fp64)

Parameters and samples are sines of their index, so that only results have to be stored: losses, every 31st entry of a
gradient (enough to detect a wrong order or a wrong factor in any weight), and parameters after some updates.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, mse_loss

STRIDE = 31
UPDATES = 7


def sines(*shape: int) -> Tensor:
    """sin(i) at entry i, in row-major order."""
    return torch.sin(torch.arange(int(np.prod(shape)), dtype=torch.float64)).reshape(shape)


def fill(model: nn.Module) -> None:
    """Parameters 0.1·sin(i), i counting through the model in its order; dense weights are (inputs, outputs) in ours."""
    size, start = sum(p.numel() for p in model.parameters()), 0
    values = 0.1 * sines(size)
    for p in model.parameters():
        entries = values[start : start + p.numel()]
        p.data = entries.reshape(p.T.shape).T.contiguous() if p.ndim == 2 else entries.reshape(p.shape)
        start += p.numel()


def gradient(model: nn.Module) -> Tensor:
    """All gradients, flat, dense weights as (inputs, outputs)."""
    return torch.cat([(p.grad.T if p.ndim == 2 else p.grad).reshape(-1) for p in model.parameters()])


def model_results(model: nn.Module, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """Loss and gradient of `model` on the batch."""
    model.double()
    fill(model)
    value = loss(model(x), y)
    value.backward()
    return {"loss": value.detach().numpy(), "grad": gradient(model)[::STRIDE].numpy()}


def optimiser_results(kind: type[torch.optim.Optimizer], **fields: Any) -> dict[str, Any]:
    """Parameters sin(i) after updates by the gradients cos(i + t), t = 0, 1, …"""
    params = nn.Parameter(sines(12))
    optimiser = kind([params], **fields)
    for t in range(UPDATES):
        params.grad = torch.cos(torch.arange(12, dtype=torch.float64) + t)
        optimiser.step()
    return {"params": params.detach().numpy()}


def lenet5(activation: type[nn.Module]) -> nn.Module:
    """LeNet-5 for pictures of 32x32."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), activation(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), activation(), nn.AvgPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(400, 120), activation(), nn.Linear(120, 84), activation(), nn.Linear(84, 10)),
    )


def main() -> None:
    """Write every case under `case/result`."""
    pictures, labels = sines(4, 1, 8, 8), torch.tensor([3, 1, 4, 1])
    large = interpolate(pictures, scale_factor=4, mode="nearest")
    rows, numbers = sines(4, 5), sines(4, 3)
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    cases = {
        "lenet5_relu": model_results(lenet5(nn.ReLU), large, labels, cross_entropy),
        "lenet5_tanh": model_results(lenet5(nn.Tanh), large, labels, cross_entropy),
        "mlp_relu": model_results(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
            pictures,
            labels,
            cross_entropy,
        ),
        "mlp_tanh": model_results(
            nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3)),
            rows,
            numbers,
            mse_loss,
        ),
        "sgd": optimiser_results(sgd, lr=0.1, weight_decay=0.01),
        "momentum": optimiser_results(sgd, lr=0.1, momentum=0.9, weight_decay=0.01),
        "nesterov": optimiser_results(sgd, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        "adam": optimiser_results(adam, lr=0.1, betas=(0.8, 0.95), eps=1e-8, weight_decay=0.01),
        "adamw": optimiser_results(adamw, lr=0.1, betas=(0.8, 0.95), eps=1e-8, weight_decay=0.2),
    }
    results = {f"{case}/{name}": array for case, arrays in cases.items() for name, array in arrays.items()}
    np.savez_compressed(Path(__file__).with_suffix(".npz"), allow_pickle=False, **results)


if __name__ == "__main__":
    main()
