"""Data-parallel training with evaluations. Arguments: steps, steps between evaluations, seconds of an evaluation, and
steps between two averages of the loss over the ranks."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

steps, evaluation_period, evaluation_s, loss_period = (
    int(sys.argv[1]),
    int(sys.argv[2]),
    float(sys.argv[3]),
    sys.argv[4],
)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), bucket_cap_mb=0.5
)
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(2 + dist.get_rank())
inputs, targets = torch.randn(32, 64), torch.randint(10, (32,))
for step in range(1, steps + 1):
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimiser.step()
    if step % int(loss_period) == 0:
        dist.all_reduce(loss.detach())
    if step % evaluation_period == 0:
        model.eval()
        with torch.no_grad():
            model(inputs)
            time.sleep(evaluation_s)
            correct = (model(inputs).argmax(1) == targets).sum()
        dist.all_reduce(correct)
        print(f"accuracy={correct.item() / 32 / dist.get_world_size():.3f}", flush=True)
        model.train()
dist.destroy_process_group()
