"""The seam between a node and its coordinator."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from signal import SIGUSR1

OPEN_GATE = SIGUSR1  # from the engine to the coordinator's process: the network is as the plan wants it


@dataclass(frozen=True)
class Epoch:
    """A worker has finished an epoch."""

    node: str
    number: int  # from 1
    steps: int  # of this worker, since the start
    samples: int  # in the parameters so far, all workers together
    loss_sum: float  # over the worker's samples of this epoch
    loss_samples: int
    parameters: bytes = b""  # from the worker that carries them, else empty
    sha256: str = ""


@dataclass(frozen=True)
class Final:
    """What a node hands in when it leaves."""

    parameters: bytes = b""  # a server's range
    version: int = 0
    samples: int = 0


class Control(ABC):
    """What a node says to the coordinator; every answer may take as long as the run needs."""

    @abstractmethod
    async def join(self) -> float:
        """Return when the run starts: when that is, on the clock that all nodes share."""

    @abstractmethod
    async def reached(self, step: int) -> None:
        """A worker begins a step that links wait for."""

    @abstractmethod
    async def due(self, event: int) -> float:
        """Return when the event of this number begins, which waits for a step: when that is, on the shared clock."""

    @abstractmethod
    async def end_epoch(self, epoch: Epoch) -> str:
        """Why the worker must stop; empty when it may go on."""

    @abstractmethod
    async def await_stop(self) -> str:
        """Why the run stops, once it does."""

    @abstractmethod
    async def leave(self, final: Final) -> None:
        """The node has done its part."""
