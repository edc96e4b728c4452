"""Data-parallel training of an MLP, as in tutorials. Arguments: steps, seconds added per step, `keep` (the group)."""

import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

steps, extra_s = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), bucket_cap_mb=0.5
)
optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
criterion = nn.CrossEntropyLoss()
torch.manual_seed(2 + rank)
for _ in range(steps):
    inputs, targets = torch.randn(32, 64), torch.randint(10, (32,))
    optimiser.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    time.sleep(extra_s)
    optimiser.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print(f"backend={dist.get_backend()} loss={loss.item():.9f} params={digest}", flush=True)
if sys.argv[3:] != ["keep"]:
    dist.destroy_process_group()
