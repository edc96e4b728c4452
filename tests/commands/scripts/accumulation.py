"""Gradient accumulation: three backward passes per update, the first two without communication. Argument: steps."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(nn.Linear(64, 64))
optimiser = torch.optim.Adam(model.parameters())
for _ in range(int(sys.argv[1])):
    for part in range(3):
        with model.no_sync() if part < 2 else contextlib.nullcontext():
            model(torch.randn(8, 64)).square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()
dist.destroy_process_group()
