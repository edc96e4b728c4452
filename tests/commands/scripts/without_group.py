"""Training without torch.distributed. Argument: steps."""

import sys

import torch
from torch import nn

model = nn.Linear(4, 4)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    model(torch.randn(2, 4)).sum().backward()
    optimiser.step()
