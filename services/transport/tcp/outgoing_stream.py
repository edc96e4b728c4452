"""Outgoing TCP stream to one neighbour, which outlives its connections."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from services.runtime.clock import Clock
from services.runtime.transport import Buffer
from services.schema.errors import DeadlineExceeded, NetworkError, PeerUnreachable, ProtocolError
from services.transport.send_order import SMALL_MESSAGE_BYTES, SmallMessagesFirstLock
from services.transport.streams.connection_log import ConnectionLog
from services.transport.streams.received_streams import STREAM_ID_BYTES, StreamOpening
from services.transport.streams.unacknowledged import (
    Frame,
    UnacknowledgedMessages,
    copy_frame,
    count_frame_bytes,
    insert_tags,
    tail_of_frame,
)
from services.transport.tcp.receiver import UNKNOWN_STREAM_COUNT
from services.transport.tcp.sender import (
    COMPLETION,
    CONNECT_RETRY_S,
    COUNT_FORMAT,
    OpenedConnection,
    StreamSender,
)

# Connections one after the other that end before the receiver has another message: more would not help, either.
MAX_CONNECTIONS_WITHOUT_PROGRESS = 10

# Wall seconds for one try to open a connection again. The kernel would wait longer and longer between its own tries.
OPENING_TIMEOUT_S = 5.0

OpenConnection = Callable[[StreamOpening], Awaitable[OpenedConnection]]


class SendTimeLimit(NamedTuple):
    """Time within which a neighbour must accept a message, and a stream must have a connection again."""

    virtual_s: float
    wall_s: float


class OutgoingStream:
    """Stream of messages to one neighbour.

    One message at a time is written. Each message has a number, and is kept until the neighbour has acknowledged it.
    When a connection ends early, the stream opens another one, learns which messages have arrived, and sends the others
    again.
    """

    def __init__(
        self,
        target: str,
        open_connection: OpenConnection,
        time_limit: Callable[[], SendTimeLimit],
        clock: Clock,
        log: ConnectionLog | None,
    ) -> None:
        """Create a stream, and start to open its first connection.

        Args:
            target: name of the neighbour.
            open_connection: opens a connection of the stream.
            time_limit: returns the time limit of messages and new connections, which may change.
            clock: of this node.
            log: log of connections; None for none.
        """
        self.write_lock = SmallMessagesFirstLock()
        self.messages = UnacknowledgedMessages()
        self._target = target
        self._open_connection = open_connection
        self._time_limit = time_limit
        self._clock = clock
        self._log = log
        self._stream_id = os.urandom(STREAM_ID_BYTES)
        self._sender: StreamSender | None = None  # None while the stream has no connection
        self._opening_sender: StreamSender | None = None  # of a new connection, until old messages are sent again
        self._error: NetworkError | None = None  # with which the stream has ended
        self._is_error_raised = False
        self._acknowledged_before, self._connections_without_progress = 0, 0
        self._writing_tasks: set[asyncio.Task[None]] = set()
        self._opening_task = asyncio.get_running_loop().create_task(self._open_first_connection())

    @property
    def can_write_at_once(self) -> bool:
        """Whether the next message has to wait neither for a connection nor for acknowledgements."""
        return self._sender is not None and not self.messages.is_full

    async def wait_until_open(self) -> None:
        """Wait until the stream has a connection.

        Raises:
            NetworkError: the stream has ended.
        """
        while self._sender is None:
            self._raise_if_ended()
            await asyncio.wait([self._opening_task])

    async def wait_until_writable(self) -> None:
        """Wait until the stream has a connection, and memory for the copy of another message.

        Raises:
            NetworkError: the stream has ended.
            DeadlineExceeded: the neighbour accepts no message in time. The stream has then ended.
        """
        if self.can_write_at_once:
            return
        try:
            async with asyncio.timeout(self._time_limit().wall_s):
                while self.messages.is_full:
                    self._raise_if_ended()
                    await self.messages.wait_for_change()
                await self.wait_until_open()
        except TimeoutError:
            self._end_with_error(self._late_message_error())
            self._raise_if_ended()

    def start_message(
        self, encoded_prefix: bytes, data: Buffer, *padding: Buffer, data_on_wire: Buffer | None = None
    ) -> asyncio.Task[None] | None:
        """Write as much of a message as the kernel accepts at once, and release the lock when the rest is written.

        The caller has the lock, and may change `data` afterwards. It has called `wait_until_writable`.

        Args:
            encoded_prefix: prefix of the message.
            data: its payload.
            padding: buffers that follow the payload.
            data_on_wire: what is sent in place of the payload at the first try; its authentication tag is that of the
                payload. None for the payload.

        Returns:
            None if the whole message is written; else the task that writes the rest, even if its caller is cancelled.
        """
        assert self._sender is not None  # noqa: S101 - the caller has waited for the connection
        sender = self._sender
        frame = (COUNT_FORMAT.pack(self.messages.sent_count + 1) + encoded_prefix, data, *padding)
        tags = sender.make_tags(frame)
        frame_on_wire = frame if data_on_wire is None else (frame[0], data_on_wire, *padding)
        try:
            unsent_bytes = count_frame_bytes(sender.write_and_return_unsent(*insert_tags(frame_on_wire, tags)))
        except OSError as error:
            unsent_bytes = count_frame_bytes(insert_tags(frame_on_wire, tags))
            self._handle_end_of_connection(sender, str(error))
        copied_frame = copy_frame(frame)
        self.messages.add(copied_frame)
        if not unsent_bytes:
            self.write_lock.release()
            return None
        copy_on_wire = copied_frame if data_on_wire is None else copy_frame(frame_on_wire)
        rest = tail_of_frame(insert_tags(copy_on_wire, tags), unsent_bytes)
        task = asyncio.get_running_loop().create_task(self._write_rest(sender, rest))
        self._writing_tasks.add(task)
        task.add_done_callback(self._finish_writing)
        return task

    def _finish_writing(self, task: asyncio.Task[None]) -> None:
        self._writing_tasks.discard(task)
        self.write_lock.release()
        if not task.cancelled():
            task.exception()  # the sender of the message has the error, or no longer waits

    async def _write_rest(self, sender: StreamSender, rest: Frame) -> None:
        """Write the rest of a message, or wait until the whole message is sent over another connection."""
        try:
            async with asyncio.timeout(self._time_limit().wall_s):
                try:
                    await sender.write_to_socket(*rest)
                except OSError as error:
                    self._handle_end_of_connection(sender, str(error))
                await self.wait_until_open()
        except TimeoutError:
            self._end_with_error(self._late_message_error())
            self._raise_if_ended()

    def _late_message_error(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"{self._target} did not accept a message within {self._time_limit().virtual_s:g} s")

    def drop_connection(self) -> None:
        """End the connection as a fault of the network would, if there is one."""
        if self._sender is not None:
            with suppress(OSError):  # it has just ended
                self._sender.shut_down()

    async def close(self, encoded_end: bytes) -> None:
        """Send the last message, and wait until the neighbour has acknowledged all messages.

        A stream whose error was raised before is left alone.

        Raises:
            NetworkError: the stream has ended, or the neighbour does not acknowledge all messages in time.
        """
        try:
            async with asyncio.timeout(self._time_limit().wall_s):
                await self.write_lock.acquire(SMALL_MESSAGE_BYTES + 1)  # behind all messages that wait or are written
                if self._is_error_raised:
                    return
                await self.wait_until_open()
                if (writing := self.start_message(encoded_end, b"")) is not None:
                    await writing
                while self.messages.acknowledged_count < self.messages.sent_count:
                    self._raise_if_ended()
                    await self.messages.wait_for_change()
                await self._send_completion()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self._target} did not confirm the end of the stream in {self._time_limit().virtual_s:g} s"
            ) from None
        finally:
            self.abort()

    async def _send_completion(self) -> None:
        """Report to the neighbour that this stream opens no other connection."""
        if self._sender is not None:
            with suppress(OSError):  # the neighbour has everything, and ends without it after a second
                await self._sender.write_to_socket(COMPLETION)

    def abort(self) -> None:
        """Close the connection at once, and open no other one."""
        self._end_with_error(PeerUnreachable(f"the stream to {self._target} was closed"))

    def _raise_if_ended(self) -> None:
        if self._error is not None:
            self._is_error_raised = True
            raise self._error

    def _end_with_error(self, error: NetworkError) -> None:
        """End the stream: it opens no other connection, and messages without acknowledgement are lost."""
        self._error = self._error or error
        if self._opening_task is not asyncio.current_task():
            self._opening_task.cancel()
        for sender in (self._sender, self._opening_sender):
            if sender is not None:
                sender.close()
        self._sender = self._opening_sender = None
        self.messages.notify_waiting()

    def _handle_end_of_connection(self, sender: StreamSender, reason: str) -> None:
        """Start to open another connection after an early end of this one."""
        if sender is self._opening_sender:
            sender.close()
            self._opening_sender = None
        if sender is not self._sender:
            return
        sender.close()
        self._sender = None
        if self._log is not None:
            self._log.record_drop(self._target, reason)
        self._opening_task = asyncio.get_running_loop().create_task(self._reopen(self._clock.now()))

    async def _open_first_connection(self) -> None:
        try:
            await self._open_and_resend(is_reopened=False)
        except Exception as error:  # noqa: BLE001 - tasks that send wait for the end of the stream
            self._end_with_error(self._opening_error(error))

    async def _reopen(self, dropped_at_s: float) -> None:
        """Open another connection, and send the messages again that have not arrived."""
        try:
            async with asyncio.timeout(self._time_limit().wall_s):
                resent_messages = await self._open_and_resend(is_reopened=True)
        except TimeoutError:
            limit = f"{self._time_limit().virtual_s:g} s"
            self._end_with_error(PeerUnreachable(f"the stream to {self._target} had no connection for {limit}"))
        except Exception as error:  # noqa: BLE001 - tasks that send wait for the end of the stream
            self._end_with_error(self._opening_error(error))
        else:
            if self._log is not None:
                self._log.record_reopening(self._target, self._clock.now() - dropped_at_s, resent_messages)

    def _opening_error(self, error: Exception) -> NetworkError:
        """Return the error with which the stream ends when no connection could be opened."""
        if isinstance(error, NetworkError):
            return error
        return PeerUnreachable(f"the stream to {self._target} broke off: {type(error).__name__}: {error}")

    async def _open_and_resend(self, *, is_reopened: bool) -> int:
        """Try until a connection has sent all messages that have not arrived, and return their number."""
        while True:
            resent_messages = await self._try_connection(is_reopened=is_reopened)
            if resent_messages is not None:
                return resent_messages
            await asyncio.sleep(CONNECT_RETRY_S)

    async def _try_connection(self, *, is_reopened: bool) -> int | None:
        """Open a connection and send the messages that have not arrived; return their number, or None if it has ended.

        Raises:
            NetworkError: another try would not help.
        """
        try:
            async with asyncio.timeout(OPENING_TIMEOUT_S if is_reopened else None):
                sender, received_count = await self._open_connection(StreamOpening(self._stream_id, is_reopened))
        except OSError:
            return None
        self._opening_sender = sender
        sender.read_acknowledgements(
            partial(self._acknowledge, sender), partial(self._handle_end_of_connection, sender)
        )
        self._check_progress(received_count)
        frames = tuple(self.messages.frames)
        try:
            for frame in frames:
                await sender.write_to_socket(*insert_tags(frame, sender.make_tags(frame)))
        except OSError as error:
            self._handle_end_of_connection(sender, str(error))
        if self._opening_sender is not sender:
            return None
        self._sender, self._opening_sender = sender, None
        return len(frames)

    def _check_progress(self, received_count: int) -> None:
        """Acknowledge the messages that a neighbour has when a connection begins.

        Raises:
            PeerUnreachable: the neighbour does not know this stream, or connections end before any message has arrived.
        """
        if received_count == UNKNOWN_STREAM_COUNT:
            raise PeerUnreachable(f"the stream to {self._target} broke off: {self._target} was started again")
        try:
            self.messages.acknowledge(received_count)
        except ProtocolError as error:
            raise PeerUnreachable(f"the stream to {self._target} broke off: {error}") from error
        acknowledged_count = self.messages.acknowledged_count
        is_complete = acknowledged_count == self.messages.sent_count
        has_progress = is_complete or acknowledged_count > self._acknowledged_before
        self._connections_without_progress = 0 if has_progress else self._connections_without_progress + 1
        self._acknowledged_before = acknowledged_count
        if self._connections_without_progress > MAX_CONNECTIONS_WITHOUT_PROGRESS:
            raise PeerUnreachable(
                f"the stream to {self._target} broke off: {MAX_CONNECTIONS_WITHOUT_PROGRESS} connections in a row "
                "ended before another message had arrived"
            )

    def _acknowledge(self, sender: StreamSender, count: int) -> None:
        try:
            self.messages.acknowledge(count)
        except ProtocolError as error:
            self._handle_end_of_connection(sender, str(error))
