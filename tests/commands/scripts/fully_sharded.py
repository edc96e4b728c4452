"""Training with fully sharded parameters (FSDP2). Argument: steps."""

import gc
import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(2 + dist.get_rank())
for _ in range(int(sys.argv[1])):
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.randint(10, (16,)))
    loss.backward()
    optimiser.step()
shards = b"".join(parameter.to_local().detach().numpy().tobytes() for parameter in model.parameters())
print(f"rank={dist.get_rank()} params={hashlib.sha256(shards).hexdigest()}", flush=True)
del loss, optimiser, model  # otherwise, one process in eight aborts at its end
gc.collect()
dist.destroy_process_group()
