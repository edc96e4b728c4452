"""One rank over gloo, to compare with: run by an interpreter that has PyTorch, without any module of ours.

Speaks as `jobs` says.
"""

import json
import os
import resource
import sys
import time
from statistics import median

import numpy as np
import torch
import torch.distributed as dist


def main() -> None:
    """Live as one rank until the input ends."""
    task = json.loads(sys.argv[1])
    os.environ |= {"MASTER_ADDR": task["hosts"][0], "MASTER_PORT": str(task["ports"][0])}
    os.environ["GLOO_SOCKET_IFNAME"] = task["interface"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=task["rank"], world_size=len(task["hosts"]))
    print("ready", flush=True)  # noqa: T201 - the bench reads it
    for line in sys.stdin:
        print(json.dumps(_done(json.loads(line), len(task["hosts"]))), flush=True)  # noqa: T201 - the bench reads it
    dist.destroy_process_group()


def _done(job: dict[str, int], ranks: int) -> dict[str, float]:
    taken, before = [], 0.0
    for call in range(job["warm_ups"] + job["calls"]):
        before = _cpu_s() if call == job["warm_ups"] else before
        vector = np.ones(job["size_bytes"] // 4, np.float32)
        tensor = torch.from_numpy(vector)
        started = time.perf_counter()
        dist.all_reduce(tensor)
        taken.append(time.perf_counter() - started)
        if vector[0] != ranks or vector[-1] != ranks:
            raise ValueError(f"the sum of {ranks} ones is not {vector[0]}")
    return {"seconds": median(taken[job["warm_ups"] :]), "cpu_s": (_cpu_s() - before) / job["calls"]}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
