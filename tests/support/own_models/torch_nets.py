"""Modules of PyTorch, as a user has written them."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """A small convolutional network for one grey image; it knows nothing of Ensayo."""

    def __init__(self, channels: int = 4, classes: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 3, padding=1)
        self.dense = nn.Linear(channels * 16, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        pooled = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.dense(self.dropout(pooled.flatten(1)))


class Values(nn.Sequential):
    """A network for values, whose sizes are those of the task."""

    def __init__(self, inputs: tuple[int, ...], outputs: int, hidden: int = 5) -> None:
        super().__init__(nn.Linear(inputs[0], hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def make_values(inputs: tuple[int, ...], outputs: int, hidden: int) -> nn.Module:
    """Return the network for values."""
    return nn.Sequential(nn.Linear(inputs[0], hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def make_nothing() -> None:
    """Return no module."""


def make_labels(inputs: tuple[int, ...]) -> nn.Module:
    """Return a network with one output."""
    return nn.Linear(inputs[0], 1)


def make_pair(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a network that returns two results."""
    return Pair(inputs, outputs)


class Normalised(nn.Sequential):
    """A network with batch normalisation."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.Linear(inputs[0], 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, outputs))


class Decoder(nn.Module):
    """A bigram model whose output matrix is its embedding, with a frozen scale and an unused layer."""

    def __init__(self, outputs: int, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(outputs, width)
        self.mixed = nn.Linear(width, width)
        self.unused = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.rand(()), requires_grad=False)
        self.head = nn.Linear(width, outputs, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(torch.tanh(self.mixed(self.embedding(tokens))) * self.scale)


class Checkpointed(nn.Module):
    """A network that uses one layer in two re-entrant checkpoints."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs[0], 6)
        self.shared = nn.Linear(6, 6)
        self.last = nn.Linear(6, outputs)

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        for _ in range(2):
            has_graph = torch.is_grad_enabled()
            hidden = checkpoint(self.shared, hidden, use_reentrant=True) if has_graph else self.shared(hidden)
        return self.last(hidden)


class Pair(Values):
    """A module that returns its outputs and its inputs."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), x


class Counter(Values):
    """A module that counts its calls in a buffer."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.calls += 1
        return super().forward(x)


class Unseeded(Values):
    """A module whose initial parameters come from NumPy's global generator."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__(inputs, outputs)
        with torch.no_grad():
            self[0].weight.add_(float(np.random.rand()))  # noqa: NPY002 - this is the mistake


class Empty(nn.Module):
    """A module without parameters."""

    def forward(self, x: Any) -> Any:
        return x


class RaisesInForward(Values):
    """A module with a wrong shape."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.T)


class NoModule:
    """A class that is no module."""


def absolute_error(outputs: Any, targets: Any) -> Any:
    return (outputs - targets).abs().mean()


def summed_error(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).sum()


def unreduced_error(outputs: Any, targets: Any) -> Any:
    return (outputs - targets) ** 2


def error_as_number(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean().item()


def detached_error(outputs: Any, targets: Any) -> Any:
    return ((outputs.detach() - targets) ** 2).mean()


def error_of_transposed_targets(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets.T) ** 2).mean()


def logarithmic_error(outputs: Any, targets: Any) -> Any:
    return torch.log(-((outputs - targets) ** 2)).mean()


def summed_cross_entropy(outputs: Any, targets: Any) -> Any:
    return nn.functional.cross_entropy(outputs, targets, reduction="sum")


def contrastive_error(outputs: Any, targets: Any) -> Any:
    """Return a mean over samples that compares each sample with all others, so that it grows with the batch."""
    similarities = outputs @ targets.T
    return nn.functional.cross_entropy(similarities, torch.arange(len(outputs)))
