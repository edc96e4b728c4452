"""Many small all-reduces, every second one asynchronous. Argument: their number. Prints seconds per call."""

import sys
import time

import torch
import torch.distributed as dist

count = int(sys.argv[1])
dist.init_process_group("gloo")
value = torch.zeros(1)
for _ in range(100):
    dist.all_reduce(value)
handles = []
begin_s = time.perf_counter()
for index in range(count):
    handle = dist.all_reduce(value, async_op=index % 2 == 1)
    if handle is not None:
        handles.append(handle)
    if len(handles) == 8:
        for handle in handles:
            handle.wait()
        handles.clear()
for handle in handles:
    handle.wait()
print((time.perf_counter() - begin_s) / count, flush=True)
dist.destroy_process_group()
