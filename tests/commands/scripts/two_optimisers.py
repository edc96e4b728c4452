"""Two models with an optimiser each. Arguments: steps, and `together` or `alternating` updates."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
first, second = DistributedDataParallel(nn.Linear(16, 16)), DistributedDataParallel(nn.Linear(16, 1))
optimisers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (first, second)]
for _ in range(int(sys.argv[1])):
    inputs = torch.randn(4, 16)
    if sys.argv[2] == "together":
        second(first(inputs)).square().mean().backward()
        for optimiser in optimisers:
            optimiser.step()
    else:
        for model, optimiser in zip((first, second), optimisers, strict=True):
            model(inputs).square().mean().backward()
            optimiser.step()
    for optimiser in optimisers:
        optimiser.zero_grad()
dist.destroy_process_group()
