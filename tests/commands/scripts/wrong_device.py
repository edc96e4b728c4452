"""Script for GPUs. Argument: a call that fails without one."""

import sys

import torch
import torch.distributed as dist

CALLS = {
    "nccl": lambda: dist.init_process_group("nccl"),
    "nccl by name": lambda: dist.init_process_group(backend="cpu:gloo,cuda:nccl"),
    "nccl in a further group": lambda: dist.new_group(backend="nccl"),
    "cuda": lambda: torch.zeros(1).cuda(),
    "to cuda": lambda: torch.zeros(1).to("cuda"),
    "set_device": lambda: torch.cuda.set_device(0),
    "pin_memory": lambda: torch.zeros(1).pin_memory(),
    "stream": torch.cuda.Stream,
    "synchronize": torch.cuda.synchronize,
}

if "nccl" not in sys.argv[1] or "further" in sys.argv[1]:
    dist.init_process_group("gloo")
CALLS[sys.argv[1]]()
