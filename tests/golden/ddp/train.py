"""Record the losses of PyTorch's DistributedDataParallel: LeNet-5 over gloo, one process per rank on loopback.

    python tests/golden/ddp/train.py case.npz curve.json        (needs torch; recorded with 2.13.0, CPU)

`tests/training/test_ddp.py` writes the case: samples, first parameters, and which samples each rank has at each step
are Ensayo's. Network, gradients, exchange and updates are PyTorch's. The curve holds a loss per step: the mean over
the samples of all ranks, before the update.
"""

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # optimisers load it; here all ranks have it at once, as they are forked
import torch.distributed as dist
from torch import Tensor, multiprocessing, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


@dataclass(frozen=True)
class Case:
    """Settings and arrays that Ensayo wrote."""

    arrays: dict[str, Any]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Workers, optimiser and the other settings that are recorded with the losses."""
        return json.loads(str(self.arrays["settings"]))

    @cached_property
    def shares(self) -> list[list[Tensor]]:
        """Indices of samples by step and rank; `counts` (steps, ranks) gives the size of each share."""
        counts = self.arrays["counts"]
        parts = iter(torch.from_numpy(self.arrays["shares"]).split(counts.ravel().tolist()))
        return [[next(parts) for _ in ranks] for ranks in counts]


def lenet5(activation: type[nn.Module], params: Tensor) -> nn.Module:
    """LeNet-5 for pictures of 8x8, brought to 32x32; `params` are Ensayo's, with dense weights as (inputs, outputs)."""
    model = nn.Sequential(
        nn.Upsample(scale_factor=4, mode="nearest"),
        *(nn.Conv2d(1, 6, 5), activation(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), activation(), nn.AvgPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(400, 120), activation(), nn.Linear(120, 84), activation(), nn.Linear(84, 10)),
    )
    arrays = list(model.parameters())
    for array, values in zip(arrays, params.split([array.numel() for array in arrays]), strict=True):
        array.data = values.reshape(array.T.shape).T.contiguous() if array.ndim == 2 else values.reshape(array.shape)
    return model


def optimiser_of(fields: dict[str, Any], params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's optimiser of that kind."""
    common = {"lr": fields["rate"], "weight_decay": fields["weight_decay"]}
    match fields["kind"]:
        case "sgd":
            return torch.optim.SGD(params, **common)
        case "momentum":
            return torch.optim.SGD(params, momentum=fields["momentum"], nesterov=fields["nesterov"], **common)
        case "adam":
            return torch.optim.Adam(params, betas=(fields["beta1"], fields["beta2"]), eps=fields["epsilon"], **common)
    raise ValueError(f"no optimiser {fields['kind']}; there are sgd, momentum, adam")


def step(model: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor, batch: int) -> float:
    """One update; the mean loss over the `batch` samples of all ranks before it.

    DistributedDataParallel takes the mean over ranks, whatever their shares: a rank contributes its sum times
    ranks over samples, so that the mean over ranks is the mean over samples.
    """
    optimiser.zero_grad()
    total = cross_entropy(model(x), y, reduction="sum")
    (total * dist.get_world_size() / batch).backward()
    optimiser.step()
    total = total.detach()
    dist.all_reduce(total)
    return total.item() / batch


def train(rank: int, case: Case, meeting: str, curve: Path) -> None:
    """Train as one rank; rank 0 writes the losses."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=case.settings["workers"])
    activation = ACTIVATIONS[case.settings["model"]["activation"]]
    model = DistributedDataParallel(lenet5(activation, torch.from_numpy(case.arrays["params"])))
    optimiser = optimiser_of(case.settings["optimiser"], list(model.parameters()))
    x, y = (torch.from_numpy(case.arrays[name]) for name in "xy")
    losses = [step(model, optimiser, x[ranks[rank]], y[ranks[rank]], sum(map(len, ranks))) for ranks in case.shares]
    if rank == 0:
        record = {"settings": case.settings, "torch": torch.__version__, "backend": "gloo", "losses": losses}
        curve.write_text(json.dumps(record, indent=1) + "\n")
    dist.destroy_process_group()


def main(path: str, curve: str) -> None:
    """Train the case in `path` and write its losses to `curve`."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with np.load(path) as file:
        case = Case(dict(file))
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "ranks").as_uri()
        # Forked: to import PyTorch takes longer than to train.
        multiprocessing.start_processes(
            train, (case, meeting, Path(curve)), nprocs=case.settings["workers"], start_method="fork"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
