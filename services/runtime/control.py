"""The seam between a node and its coordinator."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from signal import SIGUSR1
from typing import Literal, TypeAlias

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


@dataclass(frozen=True)
class Verdict:
    """What a worker does after an epoch."""

    reason: str = ""  # why it must stop; empty when it may go on
    hand_over: bool = False  # another strategy takes over here


Round: TypeAlias = Literal["stopped", "loaded"]


@dataclass(frozen=True)
class Held:
    """What a node holds in a hand-over from one strategy to another; digests stand by range of the vector."""

    node: str
    round: Round  # it has stopped between two steps; or it has taken what was sent to it
    step: int = 0  # of a worker: the next one that it would do
    version: int = 0  # updates that its parameters have had
    samples: int = 0  # that went into the parameters, all workers together
    updates: int = 0  # that the optimiser's state counts
    params: tuple[str, ...] = ()  # of every range in a worker, of its own in a server; empty: it holds none
    state: tuple[str, ...] = ()  # of the optimiser's, likewise
    failure: str = ""  # why it can't go on with the hand-over
    serves: bool = False  # told as a server; one node may be a worker, too, and tells twice


@dataclass(frozen=True)
class Ruling:
    """How a hand-over goes on."""

    verb: Literal["load", "commit", "abort"]
    reason: str = ""  # of an abort
    step: int = 0  # the first of what comes after
    version: int = 0
    samples: int = 0
    updates: int = 0


class Control(ABC):
    """What a node says to the coordinator; every answer may take as long as the run needs."""

    @abstractmethod
    async def join(self) -> float:
        """Return when the run starts: when that is, on the clock that all nodes share."""

    @abstractmethod
    async def reached(self, step: int) -> None:
        """A worker begins a step that links wait for, or has skipped one."""

    @abstractmethod
    async def due(self, event: int) -> float:
        """Return when the event of this number begins, which waits for a step: when that is, on the shared clock."""

    @abstractmethod
    async def end_epoch(self, epoch: Epoch) -> Verdict:
        """What the worker does now."""

    @abstractmethod
    async def await_hand_over(self) -> bool:
        """Return true when the node must hand over; false when the run is over and it will not have to any more."""

    @abstractmethod
    async def hand_over(self, held: Held) -> Ruling:
        """The node has stopped, or has loaded; how it goes on once that is known of all."""

    @abstractmethod
    async def await_stop(self) -> str:
        """Why the run stops, once it does."""

    @abstractmethod
    async def leave(self, final: Final) -> None:
        """The node has done its part."""
