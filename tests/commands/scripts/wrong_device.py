"""Script for GPUs. Argument: `nccl` or `cuda`, where it fails without one."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("nccl" if sys.argv[1] == "nccl" else "gloo")
torch.zeros(1).cuda()
