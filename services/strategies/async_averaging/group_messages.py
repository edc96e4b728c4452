"""Messages between a worker and the service that forms groups: reports of finished steps, and groups.

All messages are empty: their metadata have all that is needed, so they take no time on links but their latency. A group
is one message with its number and the samples of all workers, and messages with the members: one bit per worker.
"""

from collections.abc import Iterator
from typing import NamedTuple

from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.strategies.async_averaging.group_generator import FormGroupAction

RANKS_PER_MESSAGE = 64  # bits of the field `version`


class WorkerGroup(NamedTuple):
    """Group of workers that average their parameters, as one member knows it."""

    number: int
    ranks: tuple[int, ...]  # of the members, ascending
    samples: int  # of all workers, in all steps that have been reported so far
    pending_samples: int  # that other workers are computing at the moment

    @classmethod
    def of_member(cls, action: FormGroupAction, rank: int) -> "WorkerGroup":
        """Return a group as the member with this rank knows it."""
        return cls(action.number, action.ranks, action.samples, action.pending_samples[rank])


def make_report_message(step: int, samples: int, next_samples: int) -> Message:
    """Return the report that a worker has finished a step, with the samples of this step and of its next one."""
    return Message(MessageTag(step, MessageKind.READY), samples=samples, pending_samples=next_samples)


def make_group_messages(step: int, group: WorkerGroup, worker_count: int) -> Iterator[Message]:
    """Yield the messages with which a member gets its group, after its report of `step`."""
    header = MessageTag(step, MessageKind.GROUP)
    yield Message(header, version=group.number, samples=group.samples, pending_samples=group.pending_samples)
    for chunk, first_rank in enumerate(range(0, worker_count, RANKS_PER_MESSAGE), start=1):
        bits = sum(1 << rank - first_rank for rank in group.ranks if 0 <= rank - first_rank < RANKS_PER_MESSAGE)
        yield Message(header._replace(chunk=chunk), version=bits)


async def receive_group(transport: Transport, service_node: str, step: int, worker_count: int) -> WorkerGroup:
    """Wait for the group of this worker after its report of `step`, and return the group."""
    tag, ranks = MessageTag(step, MessageKind.GROUP), list[int]()
    header = await transport.receive(service_node, tag)
    for chunk, first_rank in enumerate(range(0, worker_count, RANKS_PER_MESSAGE), start=1):
        message = await transport.receive(service_node, tag._replace(chunk=chunk))
        ranks.extend(first_rank + bit for bit in range(RANKS_PER_MESSAGE) if message.version >> bit & 1)
    return WorkerGroup(header.version, tuple(ranks), header.samples, header.pending_samples)
