"""Queues of the operations of one process group."""

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from torch.distributed import PrefixStore, Store

from services.collectives.execution.executor import GroupMember
from services.commands.process_group.communication_thread import (
    acquire_communication_thread,
    release_communication_thread,
)
from services.commands.process_group.communicator import GroupCommunicator
from services.commands.process_group.operation_queue import NextStep, OperationQueue, QueuedOperation, start_operation
from services.commands.process_group.operations import TensorOperations
from services.commands.process_group.settings import ProcessGroupSettings
from services.commands.process_group.work import CollectiveWork
from services.runtime.transport import MAX_CHANNEL
from services.schema.errors import ProtocolError

# Channels of a group: one for collectives, then one for each tag of the messages between two ranks.
CHANNELS_PER_GROUP = 1 << 12
COLLECTIVE_CHANNEL, FIRST_TAG_CHANNEL = range(2)
MAX_TAG = CHANNELS_PER_GROUP - FIRST_TAG_CHANNEL - 1
MAX_GROUP_NUMBER = MAX_CHANNEL // CHANNELS_PER_GROUP

RunOnTensors = Callable[[TensorOperations, NextStep], Awaitable[None]]


class GroupQueues:
    """Queues of the operations of one process group.

    Collectives have one queue. Messages to each rank have a queue per tag. Receives wait for their message only, and
    are not queued.
    """

    def __init__(
        self, store: Store, rank: int, world_size: int, settings: ProcessGroupSettings, time_limit_s: float
    ) -> None:
        """Open the streams to all nodes of the group, whose messages must arrive within so many virtual seconds.

        Raises:
            NetworkError: a node does not accept a stream in time.
        """
        self._settings = settings
        self._rank = rank
        self._names, group_number = _agree_on_group(store, rank, world_size, settings.node)
        self._first_channel = group_number * CHANNELS_PER_GROUP
        self._description = f"process group {group_number} on {settings.node} (rank {rank} of {world_size})"
        self._is_open = True
        self._thread = acquire_communication_thread(settings, time_limit_s)
        try:
            self._thread.connect(name for name in self._names if name != settings.node)
        except BaseException:
            self.close()
            raise
        self._collectives = self._make_operations(COLLECTIVE_CHANNEL)
        self._collective_queue = OperationQueue(self._thread, self._description)
        self._tag_operations: dict[int, TensorOperations] = {}
        self._send_queues: dict[tuple[int, int], OperationQueue] = {}
        self._receive_counts: Counter[tuple[int, int]] = Counter()

    def submit(self, name: str, run: RunOnTensors, result: Any) -> CollectiveWork:
        """Add a collective to the queue, and return its handle."""
        return self._collective_queue.submit(self._make_operation(name, run, self._collectives, result))

    def has_tag(self, tag: int) -> bool:
        """Return whether messages between two ranks may have this tag."""
        return 0 <= tag <= MAX_TAG

    def submit_send(self, run: RunOnTensors, result: Any, target_rank: int, tag: int) -> CollectiveWork:
        """Add a message to the queue of its target and tag, and return its handle."""
        key = (target_rank, tag)
        if key not in self._send_queues:
            self._send_queues[key] = OperationQueue(self._thread, self._description)
        return self._send_queues[key].submit(self._make_operation("send", run, self._operations_of_tag(tag), result))

    def submit_receive(self, run: RunOnTensors, result: Any, source_rank: int, tag: int) -> CollectiveWork:
        """Start to wait for the next message of a source with this tag, and return the handle."""
        step = self._receive_counts[source_rank, tag]
        self._receive_counts[source_rank, tag] += 1
        operation = self._make_operation("recv", run, self._operations_of_tag(tag), result)
        return start_operation(self._thread, operation, count(step).__next__, self._description)

    def close(self) -> None:
        """Release the streams; the last group of a process ends them."""
        if self._is_open:
            self._is_open = False
            release_communication_thread(self._settings)

    def _make_operation(
        self, name: str, run: RunOnTensors, operations: TensorOperations, result: Any
    ) -> QueuedOperation:
        return QueuedOperation(name, lambda next_step: run(operations, next_step), CollectiveWork(self._thread, result))

    def _operations_of_tag(self, tag: int) -> TensorOperations:
        if tag not in self._tag_operations:
            self._tag_operations[tag] = self._make_operations(FIRST_TAG_CHANNEL + tag)
        return self._tag_operations[tag]

    def _make_operations(self, channel: int) -> TensorOperations:
        member = GroupMember(self._thread.transport, self._names, self._rank, self._first_channel + channel)
        return TensorOperations(GroupCommunicator(member, self._settings), self._rank, len(self._names))


def _agree_on_group(store: Store, rank: int, world_size: int, node_name: str) -> tuple[list[str], int]:
    """Return the names of the group's nodes by rank, and a number that no other group has."""
    store.set(f"ensayo/node/{rank}", node_name)
    names = [store.get(f"ensayo/node/{each_rank}").decode() for each_rank in range(world_size)]
    if rank == 0:
        store.set("ensayo/group", str(_common_store(store).add("ensayo/groups", 1)))
    group_number = int(store.get("ensayo/group"))
    if group_number > MAX_GROUP_NUMBER:
        raise ProtocolError(f"a script can create at most {MAX_GROUP_NUMBER} process groups with process_group ensayo")
    return names, group_number


def _common_store(store: Store) -> Store:
    """Return the store of all groups, without the prefixes of a group."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store
