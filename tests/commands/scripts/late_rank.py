"""Rank 1 comes too late to a collective. Arguments: seconds that it sleeps, time limit of the group in seconds."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
group = dist.new_group(timeout=timedelta(seconds=float(sys.argv[2])))
if dist.get_rank() == 1:
    time.sleep(float(sys.argv[1]))
value = torch.ones(1)
dist.all_reduce(value, group=group)
print(f"sum={value.item():.0f}", flush=True)
dist.destroy_process_group()
