"""Executor of all collectives: it runs the sends and receives of one rank."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from services.collectives.base import TransferSchedule
from services.collectives.execution.payload_codec import (
    UNCOMPRESSED,
    CombineEntries,
    PayloadCodec,
    add_entries,
    create_payload_codec,
)
from services.collectives.execution.rank_schedule import RankSendOrReceive, build_rank_schedule
from services.compressors import Compressor
from services.runtime.transport import (
    Buffer,
    Message,
    MessageKind,
    MessageTag,
    PendingMessage,
    ReceiveOutcome,
    SendFuture,
    Transport,
)
from services.schema.arrays import HostArray

STAGE_BY_KIND = {"reduce": MessageKind.PARTIAL_SUM, "copy": MessageKind.TOTAL, "token": MessageKind.TOKEN}


async def all_reduce(
    transport: Transport,
    node_names: Sequence[str],
    rank: int,
    schedule: TransferSchedule,
    step: int,
    vector: HostArray,
    compressor: Compressor = UNCOMPRESSED,
) -> None:
    """Replace `vector` in place by its sum over all ranks.

    The vector has the shape (n,) and is in host memory. All ranks end with the same bits, also with a compressor that
    rounds.

    Args:
        transport: transport of this node.
        node_names: names of all nodes, by rank.
        rank: rank of this node.
        schedule: result of `Collective.plan_transfers`.
        step: number that separates the messages of this call from those of other calls.
        vector: this rank's summand, afterwards the sum.
        compressor: number format on the wire, for partial sums and totals.
    """
    member = GroupMember(transport, node_names, rank)
    payloads = await run_transfers(member, schedule, step, vector, compressor)
    payloads.round_sums_like_receiver()


class GroupMember(NamedTuple):
    """One rank of a group of ranks that run collectives with each other."""

    transport: Transport
    node_names: Sequence[str]  # of all ranks in the group, by rank
    rank: int
    channel: int = 0  # in which the collectives of this group have their steps


async def run_transfers(
    member: GroupMember,
    schedule: TransferSchedule,
    step: int,
    vector: HostArray,
    compressor: Compressor = UNCOMPRESSED,
    combine_entries: CombineEntries = add_entries,
) -> PayloadCodec:
    """Run the transfers of one rank in any collective, and return the codec of its payloads.

    The vector has the shape (n,), is in host memory and is changed in place.

    Args:
        member: this rank and its group.
        schedule: transfers of all ranks.
        step: number that separates the messages of this call from those of other calls in the same channel.
        vector: entries that this rank sends, afterwards those that the schedule gives it.
        compressor: number format on the wire.
        combine_entries: combines a received partial result with this rank's entries; by default it adds them.

    Raises:
        NetworkError: the first error of a send or receive.
    """
    transport = member.transport
    entry_bytes = vector.itemsize * transport.payload_scale
    vector_bytes = round(vector.size * entry_bytes)
    piece_bytes = schedule.max_message_bytes(vector_bytes, transport.max_piece_bytes, transport.min_piece_bytes)
    max_message_entries = max(1, int(piece_bytes // entry_bytes))
    rank_schedule = build_rank_schedule(schedule, member.rank, vector.size, max_message_entries, entry_bytes)
    payloads = create_payload_codec(
        compressor, vector, rank_schedule.pieces if schedule.rounds else (), combine_entries
    )
    send_lock = _PartialSumsFirstSendLock() if schedule.sends_partial_sums_first else None
    await _RankScheduleExecution(member, step, rank_schedule.operations, payloads, send_lock).run()
    return payloads


class _PartialSumsFirstSendLock:
    """Lock that lets one operation send at a time.

    Partial sums go first, since totals depend on partial sums.
    """

    def __init__(self) -> None:
        self._owner: int | None = None  # index of the operation that holds the lock
        self._queue: list[tuple[bool, int, int, int]] = []
        self._arrival_numbers = count()  # of equal operations, the one that has waited longest goes first

    def try_acquire(self, operation_index: int, operation: RankSendOrReceive) -> bool:
        """Try to give the send lock to an operation, and return whether the operation gets it.

        An operation without the lock waits until `release` returns `operation_index`.
        """
        if self._owner is None:
            self._owner = operation_index
        elif self._owner != operation_index:
            is_total = operation.kind == "copy"
            heappush(self._queue, (is_total, operation.message_number, next(self._arrival_numbers), operation_index))
        return self._owner == operation_index

    def release(self) -> int | None:
        """Pass the lock to the first waiting send, and return the index of this send.

        Return None if no send waits. The lock has its next owner at once, so no operation that arrives later overtakes
        the queue.
        """
        self._owner = heappop(self._queue)[-1] if self._queue else None
        return self._owner


class _RankScheduleExecution:
    """Execution of one rank's sends and receives in one collective.

    Operations are not tasks: the end of one starts those that waited for it. A received message is added and forwarded
    in the same iteration of the event loop. Tasks and futures for every piece would cost more than its sum.
    """

    def __init__(
        self,
        member: GroupMember,
        step: int,
        operations: Sequence[RankSendOrReceive],
        payloads: PayloadCodec,
        send_lock: _PartialSumsFirstSendLock | None,
    ) -> None:
        self._transport = member.transport
        self._node_names = member.node_names
        self._channel = member.channel
        self._step = step
        self._operations = operations
        self._payloads = payloads
        self._send_lock = send_lock
        self._open_prerequisites = [len(operation.prerequisites) for operation in operations]
        self._unfinished_count = len(operations)
        self._ready = deque(index for index, operation in enumerate(operations) if not operation.prerequisites)
        self._pending: dict[int, PendingMessage] = {}  # index of an operation -> its send or receive under way
        self._is_starting = False

    async def run(self) -> None:
        """Run all sends and receives of the rank, each as soon as its prerequisites are complete.

        Raises:
            NetworkError: the first error of an operation; the remaining ones are cancelled.
        """
        if not self._operations:
            return
        self._result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start_ready_operations()
        try:
            await self._result
        finally:
            if self._pending:
                await self._cancel_pending_operations()

    async def _cancel_pending_operations(self) -> None:
        """Cancel all sends and receives under way, and return when they have ended."""
        cancelled = tuple(self._pending.values())
        for pending in cancelled:
            pending.cancel()
        futures = (pending for pending in cancelled if isinstance(pending, asyncio.Future))
        await asyncio.gather(*futures, return_exceptions=True)

    def _start_ready_operations(self) -> None:
        """Start all sends and receives whose prerequisites are complete.

        Operations that become ready meanwhile are started too.
        """
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._ready and not self._result.done():
                self._start_operation(self._ready.popleft())
        except Exception as error:  # noqa: BLE001 - the caller may be a transport's callback, which cannot handle it
            self._fail_execution(error)
        self._is_starting = False

    def _start_operation(self, operation_index: int) -> None:
        operation = self._operations[operation_index]
        if not operation.is_send:
            self._start_receive(operation_index, operation)
        elif self._send_lock is None or self._send_lock.try_acquire(operation_index, operation):
            self._start_send(operation_index, operation)

    def _start_send(self, operation_index: int, operation: RankSendOrReceive) -> None:
        data = b"" if operation.kind == "token" else self._payloads.encode_payload(operation)
        message = Message(self._message_tag(operation), data)
        sending = self._transport.start_send(self._node_names[operation.peer_rank], message)
        if sending is None:
            self._complete_send(operation_index)
        else:
            self._pending[operation_index] = sending
            sending.add_done_callback(partial(self._on_send_done, operation_index))

    def _on_send_done(self, operation_index: int, send_future: SendFuture) -> None:
        if self._result.done():
            return
        del self._pending[operation_index]
        if send_future.cancelled():
            self._result.cancel()
        elif (error := send_future.exception()) is not None:
            self._fail_execution(error)
        else:
            self._complete_send(operation_index)
            self._start_ready_operations()

    def _complete_send(self, operation_index: int) -> None:
        """Pass the send lock to the next queued operation, and mark the send as complete.

        The next owner of the lock becomes ready and is not started here: only `_start_ready_operations` handles errors.
        """
        if self._send_lock is not None and (next_owner := self._send_lock.release()) is not None:
            self._ready.appendleft(next_owner)
        self._complete_operation(operation_index)

    def _start_receive(self, operation_index: int, operation: RankSendOrReceive) -> None:
        buffer = None if operation.kind == "token" else self._payloads.find_direct_receive_buffer(operation)
        on_done = partial(self._on_receive_done, operation_index, buffer)
        source = self._node_names[operation.peer_rank]
        receiving = self._transport.start_receive(source, self._message_tag(operation), on_done, buffer)
        if receiving is not None:
            self._pending[operation_index] = receiving

    def _on_receive_done(self, operation_index: int, receive_buffer: Buffer | None, outcome: ReceiveOutcome) -> None:
        if self._result.done():
            return None
        self._pending.pop(operation_index, None)
        if not isinstance(outcome, Message):
            return self._fail_execution(outcome)
        try:
            self._apply_payload(self._operations[operation_index], receive_buffer, outcome.data)
        except Exception as error:  # noqa: BLE001 - as in `_start_ready_operations`
            return self._fail_execution(error)
        self._complete_operation(operation_index)
        return self._start_ready_operations()

    def _apply_payload(self, operation: RankSendOrReceive, receive_buffer: Buffer | None, payload: Buffer) -> None:
        """Add or copy a received payload into the vector.

        Do nothing if the transport has already written the payload there.
        """
        if operation.kind != "token" and payload is not receive_buffer:
            self._payloads.apply_payload_to_vector(operation, payload)

    def _complete_operation(self, operation_index: int) -> None:
        """Mark a send or receive as complete.

        Operations that waited only for it become ready.
        """
        self._unfinished_count -= 1
        if not self._unfinished_count:
            self._result.set_result(None)
        for dependent in self._operations[operation_index].dependents:
            self._open_prerequisites[dependent] -= 1
            if not self._open_prerequisites[dependent]:
                self._ready.append(dependent)

    def _fail_execution(self, error: BaseException) -> None:
        if not self._result.done():
            self._result.set_exception(error)

    def _message_tag(self, operation: RankSendOrReceive) -> MessageTag:
        kind = STAGE_BY_KIND[operation.kind].in_channel(self._channel)
        return MessageTag(self._step, kind, operation.first_chunk, operation.message_number)
