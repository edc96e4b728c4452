"""Train a perceptron of equal layers with DistributedDataParallel.

Arguments: side (number of inputs, and of units of each hidden layer), hidden layers, outputs, samples, steps, bucket in
MB.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

side, layers, outputs, samples, steps = map(int, sys.argv[1:6])
bucket_mb = float(sys.argv[6])
dist.init_process_group("gloo")
torch.manual_seed(1)
hidden = [module for _ in range(layers) for module in (nn.Linear(side, side), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*hidden, nn.Linear(side, outputs)), bucket_cap_mb=bucket_mb)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_function = nn.MSELoss()
torch.manual_seed(2 + dist.get_rank())
for _ in range(steps):
    x, y = torch.randn(samples, side), torch.randn(samples, outputs)
    optimizer.zero_grad()
    loss_function(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
