"""The seam between an algorithm and the network: named messages to named nodes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

Buffer = bytes | memoryview  # contiguous


class Stage(IntEnum):
    """Which part of a step a message belongs to."""

    SUM = 1  # a partial sum
    SPREAD = 2  # a total
    PUSH = 3  # a gradient for a server
    REPLY = 4  # parameters for a worker
    LEAVE = 5  # the worker will push no more
    END = 6  # the last word of a stream: without it, the stream has broken off
    ALLOW = 7  # a token: the receiver may go on
    HAND_OVER = 8  # the worker pushes no more until a switch of strategies is decided
    LOAD = 9  # parameters (chunk 0) or a slot of the optimiser's state, for who needs them after a switch


class Tag(NamedTuple):
    """The name of a message from one sender; a name is used once in a run."""

    step: int
    stage: int
    chunk: int = 0
    piece: int = 0


class Message(NamedTuple):
    """At most a transport's `piece_bytes` and what the receiver must know about them; times in virtual seconds."""

    tag: Tag
    data: Buffer = b""
    version: int = 0  # of the parameters that the payload was computed from, or holds
    samples: int = 0  # that went into the payload
    sent_at: float = 0.0  # when the sender's link took it
    passed_at: float = 0.0  # when the sender's link had passed it on
    update_s: float = 0.0  # how long the sender took for this: a server to update, a worker to compute
    underway: int = 0  # samples that are in nobody's parameters yet, but will be
    waited_s: float = 0.0  # how long a server kept this back, for other workers
    alone: bool = False  # the worker waits for nobody: with an answer for its next push, and then with that push

    @property
    def size(self) -> int:
        """Payload bytes."""
        return memoryview(self.data).nbytes


Outcome: TypeAlias = Message | BaseException  # what became of waiting for a message
Then: TypeAlias = Callable[[Outcome], None]
Sending: TypeAlias = asyncio.Future[None]


class Awaited(Protocol):
    """Something that will happen, or be given up."""

    def cancel(self) -> object:
        """Nobody waits for it any more."""


@dataclass(slots=True)
class Traffic:
    """What one node has sent; framing is what the encoding adds to the payload."""

    payload_bytes: int = 0
    framing_bytes: int = 0
    messages: int = 0
    by_peer: dict[str, int] = field(default_factory=dict)

    def count(self, peer: str, payload_bytes: int, framing_bytes: int) -> None:
        """Add one message to `peer`."""
        self.payload_bytes += payload_bytes
        self.framing_bytes += framing_bytes
        self.messages += 1
        self.by_peer[peer] = self.by_peer.get(peer, 0) + payload_bytes


class Transport(ABC):
    """Messages between this node and its neighbours, each delivered once, under its tag."""

    traffic: Traffic
    piece_bytes: int  # the largest payload that one message should carry
    finest_bytes: int  # a pipeline is cut no finer: more messages would cost more than they hide

    @abstractmethod
    async def connect(self, names: Iterable[str]) -> None:
        """Get ready to send to these nodes, before anybody measures; returns when they can be reached."""

    @abstractmethod
    async def send(self, to: str, message: Message) -> None:
        """Hand a message to the network; returns when the link has taken it, not when it has arrived."""

    @abstractmethod
    async def recv(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        """Wait for a message by name; of several names, for the first that comes.

        Args:
            source: who sends it.
            tags: its names.
            into: memory as long as the payload, lent until this returns. A transport that can writes the payload there,
                and its message then has this very object as data; after an error it holds anything.

        Raises:
            DeadlineExceeded: it did not come within the plan's step timeout.
            Unreachable: the sender is gone.
        """

    def send_soon(self, to: str, message: Message) -> Sending | None:
        """Begin to `send`: for who is no task, since one per message would cost more than the message.

        Returns:
            None when the link has taken it already; else what is done when it has, and holds the errors of `send`.

        Raises:
            NetworkError: the stream has ended.
        """
        return asyncio.get_running_loop().create_task(self.send(to, message))

    def recv_then(self, source: str, tag: Tag, then: Then, into: memoryview | None = None) -> Awaited | None:
        """Begin to `recv`; `then` is called once with the message or the error.

        Returns:
            None when that has happened already.
        """
        receiving = asyncio.get_running_loop().create_task(self.recv(source, tag, into=into))
        receiving.add_done_callback(partial(_tell, then))
        return receiving


def _tell(then: Then, receiving: "asyncio.Task[Message]") -> None:
    if not receiving.cancelled():
        then(receiving.exception() or receiving.result())
