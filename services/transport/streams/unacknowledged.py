"""Messages of an outgoing stream that its receiver has not acknowledged yet."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from services.runtime.transport import Buffer
from services.schema.errors import ProtocolError

# Of one stream, beyond one message: more than the socket buffers of both ends have. A stream with more waits.
MAX_UNACKNOWLEDGED_BYTES = 32 << 20

Frame = Sequence[Buffer]  # buffers that are written for one message: head, payload and padding


class UnacknowledgedMessages:
    """Copies of the messages that a stream sends again if its connection ends.

    Messages are numbered from 1, in the order in which they are written. An acknowledgement is the number of the last
    message that the receiver has; it holds for all messages before.
    """

    def __init__(self) -> None:
        self.sent_count = 0
        self.acknowledged_count = 0
        self._frames: deque[Frame] = deque()
        self._size_bytes = 0
        self._changed: asyncio.Future[None] | None = None  # is done at the next acknowledgement

    @property
    def is_full(self) -> bool:
        """Whether the next message must wait for an acknowledgement."""
        return self._size_bytes >= MAX_UNACKNOWLEDGED_BYTES

    @property
    def frames(self) -> Iterator[Frame]:
        """Frames of the messages that are not acknowledged, the oldest first."""
        return iter(tuple(self._frames))

    def add(self, frame: Frame) -> None:
        """Keep the frame of the message that has the next number; its buffers must not change."""
        self.sent_count += 1
        self._frames.append(frame)
        self._size_bytes += count_frame_bytes(frame)

    def acknowledge(self, count: int) -> None:
        """Forget the messages up to number `count`, which the receiver has.

        Raises:
            ProtocolError: the receiver acknowledges a message that was not sent, or takes an acknowledgement back.
        """
        if not self.acknowledged_count <= count <= self.sent_count:
            raise ProtocolError(
                f"the receiver has acknowledged message {count}; allowed are {self.acknowledged_count} to "
                f"{self.sent_count}"
            )
        for _ in range(count - self.acknowledged_count):
            self._size_bytes -= count_frame_bytes(self._frames.popleft())
        self.acknowledged_count = count
        self.notify_waiting()

    def notify_waiting(self) -> None:
        """Let all calls of `wait_for_change` return."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    async def wait_for_change(self) -> None:
        """Wait until the receiver has acknowledged messages, or the stream has ended."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)


def copy_frame(frame: Frame) -> Frame:
    """Return a frame whose buffers do not change when the caller's buffers do. Only `bytes` are not copied."""
    return tuple(buffer if _is_constant(buffer) else bytes(buffer) for buffer in frame)


def insert_tags(frame: Frame, tags: Sequence[Buffer]) -> Frame:
    """Return a frame with the tag of its head and the tag of its payload behind them; unchanged without tags."""
    if not tags:
        return frame
    (head, payload, *padding), (head_tag, payload_tag) = frame, tags
    return (head, head_tag, payload, payload_tag, *padding)


def tail_of_frame(frame: Frame, size_bytes: int) -> list[memoryview]:
    """Return the last `size_bytes` bytes of a frame."""
    views = [memoryview(buffer).cast("B") for buffer in frame if len(buffer)]
    skipped_bytes = sum(map(len, views)) - size_bytes
    while views and skipped_bytes >= len(views[0]):
        skipped_bytes -= len(views.pop(0))
    return [views[0][skipped_bytes:], *views[1:]] if views else []


def _is_constant(buffer: Buffer) -> bool:
    return isinstance(buffer, bytes) or (buffer.readonly and isinstance(buffer.obj, bytes))


def count_frame_bytes(frame: Frame) -> int:
    """Return the length of a frame in bytes."""
    return sum(memoryview(buffer).nbytes for buffer in frame)
