"""Training with a loader in child processes, and a Python process beside it. Argument: `fork` or `spawn`."""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

CHILD = "import torch.distributed as d; print('gloo:', d.distributed_c10d.ProcessGroupGloo.__mro__[1].__name__)"


def main() -> None:
    """Train two epochs."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        TensorDataset(torch.randn(16, 4)), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    for _ in range(2):
        for (inputs,) in loader:
            model(inputs).sum().backward()
            optimiser.step()
    print(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stdout, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
