"""All-reduce a tensor of a given size, and update one parameter, again and again. Arguments: bytes, rounds."""

import sys

import torch
import torch.distributed as dist

size, rounds = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
tensor = torch.ones(size // 4)
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(rounds):
    parameter.sum().backward()
    dist.all_reduce(tensor)
    tensor.fill_(1.0)
    optimizer.step()
dist.destroy_process_group()
