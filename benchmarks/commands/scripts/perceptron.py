"""Train a perceptron with DistributedDataParallel. Arguments: hidden units, steps, bucket size in MB."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

hidden, steps, bucket_mb = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))
model = DistributedDataParallel(net, bucket_cap_mb=bucket_mb)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_function = nn.CrossEntropyLoss()
torch.manual_seed(2 + dist.get_rank())
for _ in range(steps):
    x, y = torch.randn(16, 64), torch.randint(10, (16,))
    optimizer.zero_grad()
    loss_function(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
