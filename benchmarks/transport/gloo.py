"""Rival of the transport benchmark: a rank that sums over gloo.

It is run by an interpreter that has PyTorch, and therefore imports no module of Ensayo. `jobs` describes the protocol.
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
    """Run one rank until its standard input ends."""
    task = json.loads(sys.argv[1])
    os.environ |= {"MASTER_ADDR": task["hosts"][0], "MASTER_PORT": str(task["ports"][0])}
    os.environ["GLOO_SOCKET_IFNAME"] = task["interface"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=task["rank"], world_size=len(task["hosts"]))
    print("ready", flush=True)  # noqa: T201 - the bench reads it
    for line in sys.stdin:
        print(json.dumps(_run_job(json.loads(line), len(task["hosts"]))), flush=True)  # noqa: T201 - the bench reads it
    dist.destroy_process_group()


def _run_job(job: dict[str, int], rank_count: int) -> dict[str, float]:
    calls_s, cpu_start_s = [], 0.0
    for call in range(job["warm_ups"] + job["calls"]):
        cpu_start_s = _cpu_s() if call == job["warm_ups"] else cpu_start_s
        vector = np.ones(job["size_bytes"] // 4, np.float32)
        tensor = torch.from_numpy(vector)
        started = time.perf_counter()
        dist.all_reduce(tensor)
        calls_s.append(time.perf_counter() - started)
        if vector[0] != rank_count or vector[-1] != rank_count:
            raise ValueError(f"wrong sum of {rank_count} vectors of ones: {vector[0]} instead of {rank_count}")
    return {"seconds": median(calls_s[job["warm_ups"] :]), "cpu_s": (_cpu_s() - cpu_start_s) / job["calls"]}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
