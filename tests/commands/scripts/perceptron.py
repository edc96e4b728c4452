"""Data-parallel training of a perceptron. Arguments: hidden units, steps."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

width, steps = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2)))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(2 + dist.get_rank())
for step in range(1, steps + 1):
    inputs = torch.randn(16, 8)
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), (inputs.sum(1) > 0).long())
    loss.backward()
    optimiser.step()
    if step % 5 == 0 and dist.get_rank() == 0:
        print(f"loss={loss.item():.4f}", flush=True)
dist.destroy_process_group()
