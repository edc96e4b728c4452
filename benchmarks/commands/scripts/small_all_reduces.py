"""Print the median time of an all-reduce of four bytes on a single rank, in microseconds. Argument: number of calls."""

import statistics
import sys
import time

import torch
import torch.distributed as dist

CALLS_PER_STEP = 20

dist.init_process_group("gloo")
tensor = torch.ones(1)
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
seconds = []
for _ in range(int(sys.argv[1]) // CALLS_PER_STEP):
    parameter.sum().backward()
    for _ in range(CALLS_PER_STEP):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - begin)
    optimizer.step()
sys.stdout.write(f"call_us={statistics.median(seconds) * 1e6:.2f}\n")
dist.destroy_process_group()
