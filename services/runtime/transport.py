"""Transport interface, with which nodes exchange tagged messages.

Strategies use it; other nodes are identified by name.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

Buffer = bytes | memoryview  # contiguous
# Protection of messages between nodes: streams with a signed opening, tags of messages in addition, or TLS in addition.
DataProtection: TypeAlias = Literal["signed", "authenticated", "tls"]


class MessageKind(IntEnum):
    """Purpose of a message within a training step."""

    PARTIAL_SUM = 1  # of a collective
    TOTAL = 2  # complete sum of a collective
    PUSH = 3  # gradient from a worker to a server
    REPLY = 4  # parameters from a server to a worker
    LEAVE = 5  # the worker will push no more
    END_OF_STREAM = 6  # last message of a stream: a stream that ends without it has broken off
    TOKEN = 7  # empty message: the receiver may continue
    STRATEGY_SWITCH = 8  # the worker pushes nothing until a strategy switch is decided
    LOAD = 9  # parameters (chunk 0) or an optimiser slot, for a node that needs them after a strategy switch
    BLOCK = 10  # part of a tensor that one rank sends to another
    READY = 11  # the worker has finished its step and waits for a group of workers
    GROUP = 12  # the group of workers with which the receiver averages its parameters
    STATE = 13  # part of the state of a worker, for a worker that joins the training again

    def in_channel(self, channel: int) -> int:
        """Return the number of this kind of message in a channel.

        Channels are sequences of steps that progress independently of each other. Training uses channel 0,
        channel 1 for the second collective of a sum, and the channels from 2 on for parts of a gradient.
        """
        return self | channel << _KIND_BITS


_KIND_BITS = 8  # of a kind's number; the channel has the other 24 bits
MAX_CHANNEL = (1 << 24) - 1


class MessageTag(NamedTuple):
    """Identifier of a message among all messages of one sender.

    Each tag is used once per run.
    """

    step: int
    kind: int  # a MessageKind, in a channel
    chunk: int = 0
    piece: int = 0

    @property
    def kind_name(self) -> str:
        """Name of the kind of message, without its channel."""
        return MessageKind(self.kind & ((1 << _KIND_BITS) - 1)).name


class Message(NamedTuple):
    """Message between two nodes: a payload and its metadata.

    The payload has at most the transport's `max_payload_bytes`. Times are in virtual seconds.
    """

    tag: MessageTag
    data: Buffer = b""  # the payload
    version: int = 0  # of the parameters that the payload was computed from, or contains
    samples: int = 0  # that contributed to the payload
    link_start_s: float = 0.0  # when the message started to pass the sender's link
    link_end_s: float = 0.0  # when the message had passed the sender's link
    update_s: float = 0.0  # time spent on the payload: update time of a server, compute time of a worker
    pending_samples: int = 0  # in a reply: samples in computation or waiting for an update, not yet in the parameters
    waited_s: float = 0.0  # for which a server held this reply back until other workers had pushed
    skips_wait: bool = False  # the worker's next push waits for no other worker: set in a reply, repeated in that push

    @property
    def size_bytes(self) -> int:
        """Length of the message's payload in bytes."""
        return memoryview(self.data).nbytes


ReceiveOutcome: TypeAlias = Message | BaseException  # a received message, or the error instead of it
ReceiveCallback: TypeAlias = Callable[[ReceiveOutcome], None]
SendFuture: TypeAlias = asyncio.Future[None]


class PendingMessage(Protocol):
    """Send or receive operation that is under way and can be cancelled."""

    def cancel(self) -> object:
        """Cancel the send or receive operation, because its result is no longer needed."""


@dataclass(slots=True)
class SentTraffic:
    """Bytes and messages that one node has sent.

    Framing bytes are those that the encoding adds to the payload.
    """

    payload_bytes: int = 0
    framing_bytes: int = 0
    messages: int = 0
    payload_bytes_by_peer: dict[str, int] = field(default_factory=dict)

    def add_message(self, peer_name: str, payload_bytes: int, framing_bytes: int) -> None:
        """Add one message to the node `peer_name` to the counters of sent traffic."""
        self.payload_bytes += payload_bytes
        self.framing_bytes += framing_bytes
        self.messages += 1
        self.payload_bytes_by_peer[peer_name] = self.payload_bytes_by_peer.get(peer_name, 0) + payload_bytes


class Transport(ABC):
    """Base class of transports, which exchange messages with other nodes.

    Each message is delivered once.
    """

    traffic: SentTraffic
    # Bytes on the wire for each byte of a payload: above 1 where a scenario declares messages of a larger model.
    payload_scale: float = 1.0
    max_piece_bytes: int  # the largest size on the wire that one message should have
    min_piece_bytes: int  # the smallest piece of a pipeline: more messages would cost more time than they hide

    @property
    def max_payload_bytes(self) -> float:
        """Largest payload that one message should carry."""
        return self.max_piece_bytes / self.payload_scale

    def size_on_wire(self, message: Message) -> int:
        """Return the bytes for which a message counts on links: its payload, scaled to the declared size."""
        return round(message.size_bytes * self.payload_scale)

    @abstractmethod
    async def connect(self, node_names: Iterable[str]) -> None:
        """Open the connections to other nodes, before the timed part of the run.

        The nodes are `node_names`. Return when the nodes can be reached.
        """

    @abstractmethod
    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        """Forget the connections to nodes that were lost, and all messages of steps before `oldest_step`.

        A node of the same name that is started later gets new connections. At its end, this node does not wait for
        streams from lost nodes: they may be frozen, with open connections.

        Args:
            names: names of the lost nodes.
            oldest_step: first step whose messages are kept.
            returned: nodes that have been started again, so that this node waits for them at its end.
        """

    @abstractmethod
    async def send(self, target: str, message: Message) -> None:
        """Send a message to the node `target`.

        Return when the link has accepted the message, before it arrives.
        """

    @abstractmethod
    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        """Wait for a message from one node, and return the message.

        The message has one of the tags; the first such message that arrives is returned.

        Args:
            source: name of the sending node.
            tags: tags of the messages to wait for.
            buffer: memory of the length of the payload, lent until this call returns. If the transport is able to, it
                writes the payload there, and the message has this very object as `data`. Its content is undefined after
                an error.

        Raises:
            DeadlineExceeded: no such message arrived within the step timeout of the plan.
            Unreachable: the sending node is gone.
        """

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        """Start to send a message, and return without waiting.

        The method is for callers outside of an asyncio task. One task per message would cost more than the message.

        Returns:
            None when the link has taken the message already; else a future that is done when the link has taken it,
            and that holds the error if `send` fails.

        Raises:
            NetworkError: the stream to `target` has ended.
        """
        return asyncio.get_running_loop().create_task(self.send(target, message))

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> PendingMessage | None:
        """Start to receive a message, and return without waiting.

        `callback` is called once, with the message or the error.

        Returns:
            None when `callback` has already been called.
        """
        receive_task = asyncio.get_running_loop().create_task(self.receive(source, tag, buffer=buffer))
        receive_task.add_done_callback(partial(_call_back_with_outcome, callback))
        return receive_task


def _call_back_with_outcome(callback: ReceiveCallback, receive_task: "asyncio.Task[Message]") -> None:
    if not receive_task.cancelled():
        callback(receive_task.exception() or receive_task.result())
