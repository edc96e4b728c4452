"""Data-parallel training of a network with batch normalisation. Argument: steps."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 2)))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(2 + dist.get_rank())
for _ in range(int(sys.argv[1])):
    inputs = torch.randn(16, 8)
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(inputs), (inputs.sum(1) > 0).long()).backward()
    optimiser.step()
dist.destroy_process_group()
