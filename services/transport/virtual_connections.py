"""Connections between nodes of a virtual network, which events can drop."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.cluster.network import Network
from services.runtime.transport import Message
from services.schema.errors import NetworkError
from services.transport.streams.connection_log import ConnectionLog

RECONNECTION_S = 0.05  # virtual seconds until a sender opens a new connection, in addition to two round trips

NodePair = tuple[str, str]  # sender and receiver
DeliverMessage = Callable[[str, str, Message], Awaitable[None]]  # from a node to another one, over the links


@dataclass
class _LostConnection:
    """Connection that was dropped, and is not replaced yet or never."""

    messages: list[Message]  # that are sent again, in their order
    error: NetworkError | None = None  # with which the stream has ended, because a message could not be sent again
    reopened: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class VirtualConnections:
    """Messages on their way between nodes, and connections that were dropped.

    A drop loses the messages on their way. The sender sends them again over a new connection, before any other message.
    """

    def __init__(
        self,
        network: Network,
        withdraw_delayed: Callable[[str, str], list[Message]],
        resend: DeliverMessage,
    ) -> None:
        """Create the connections of a network in which no connection was dropped.

        Args:
            network: that has the delays of paths.
            withdraw_delayed: returns, and does not deliver, the messages that have passed the links but not the delay.
            resend: sends a message again.
        """
        self._delay_s = {(path.source, path.target): path.delay_s for path in network.paths}
        self._withdraw_delayed = withdraw_delayed
        self._resend = resend
        self._deliveries: dict[asyncio.Task[None], tuple[NodePair, Message]] = {}
        self._lost: dict[NodePair, _LostConnection] = {}

    def start_delivery(self, source: str, target: str, message: Message, deliver: DeliverMessage) -> None:
        """Start to deliver a message that has entered the sender's link; without a connection, it is sent again."""
        lost = self._lost.get((source, target))
        if lost is not None and (lost.error is not None or not lost.reopened.is_set()):
            lost.messages.append(message)
            return
        task = asyncio.ensure_future(deliver(source, target, message))
        self._deliveries[task] = ((source, target), message)
        task.add_done_callback(lambda done: self._deliveries.pop(done, None))

    async def wait_until_connected(self, source: str, target: str) -> None:
        """Wait until a dropped connection is replaced; return without a switch of tasks if none was dropped.

        Raises:
            NetworkError: a message could not be sent again in time, which has ended the stream.
        """
        while (lost := self._lost.get((source, target))) is not None:
            await lost.reopened.wait()
            if lost.error is not None:
                raise lost.error

    def drop(self, source: str, target: str, reason: str, log: ConnectionLog | None) -> None:
        """Drop the connection over which a node sends to another one, and log the reason."""
        if (source, target) in self._lost:
            return
        under_way = [task for task, (pair, _) in self._deliveries.items() if pair == (source, target)]
        messages = self._withdraw_delayed(source, target)
        for task in under_way:
            messages.append(self._deliveries.pop(task)[1])
            task.cancel()
        lost = self._lost[source, target] = _LostConnection(messages)
        if log is not None:
            log.record_drop(target, reason)
        lost.task = asyncio.get_running_loop().create_task(self._reconnect((source, target), lost, log))

    def forget_node(self, node_name: str) -> None:
        """Forget the dropped connections of a node that was lost, with all messages that would be sent again."""
        for pair in [pair for pair in self._lost if node_name in pair]:
            lost = self._lost.pop(pair)
            lost.reopened.set()
            if lost.task is not None:
                lost.task.cancel()

    async def _reconnect(self, pair: NodePair, lost: _LostConnection, log: ConnectionLog | None) -> None:
        source, target = pair
        round_trip_s = self._delay_s.get((source, target), 0.0) + self._delay_s.get((target, source), 0.0)
        loop = asyncio.get_running_loop()
        dropped_at_s = loop.time()
        await asyncio.sleep(RECONNECTION_S + 2 * round_trip_s)
        resent_messages = 0
        while resent_messages < len(lost.messages):
            # One message at a time. Messages that were on the sender's link at the drop join the list meanwhile.
            try:
                await self._resend(source, target, lost.messages[resent_messages])
            except NetworkError as error:
                lost.error = error
                lost.reopened.set()
                return
            resent_messages += 1
        lost.reopened.set()
        if self._lost.get(pair) is lost:
            del self._lost[pair]
        if log is not None:
            log.record_reopening(target, loop.time() - dropped_at_s, resent_messages)
