"""Exchange of vectors between single ranks: one vector to one rank, or one to each rank (all-to-all)."""

import asyncio
from collections.abc import Sequence

import numpy as np

from services.collectives.execution.executor import GroupMember
from services.runtime.transport import Message, MessageKind, MessageTag
from services.runtime.vector_messages import send_vector, split_vector
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError


async def send_block(member: GroupMember, step: int, target_rank: int, vector: HostArray) -> None:
    """Send a vector to one rank, which calls `receive_block` with the same `step` and a vector of the same size.

    Return when the link has taken the vector.
    """
    await send_vector(member.transport, member.node_names[target_rank], Message(_block_tag(member, step)), vector)


async def receive_block(member: GroupMember, step: int, source_rank: int, vector: HostArray) -> None:
    """Receive a vector from one rank into `vector`.

    Raises:
        ProtocolError: the sent vector has another size.
        NetworkError: the sender is gone, or has not sent in time.
    """
    transport, source = member.transport, member.node_names[source_rank]
    pieces = list(split_vector(vector, transport.max_payload_bytes)) or [vector]
    for number, piece in enumerate(pieces):
        buffer = piece.data.cast("B") if piece.size else None
        message = await transport.receive(source, _block_tag(member, step)._replace(piece=number), buffer=buffer)
        if message.size_bytes != piece.nbytes:
            raise ProtocolError(f"{source} sent a block of another size than the {vector.nbytes} bytes expected here")
        if message.data is not buffer and piece.size:
            piece[:] = np.frombuffer(message.data, piece.dtype)


async def exchange_blocks(
    member: GroupMember, step: int, outgoing: Sequence[HostArray], incoming: Sequence[HostArray]
) -> None:
    """Send `outgoing[k]` to rank k, and receive the block of rank k into `incoming[k]`, for all ranks k (all-to-all).

    Blocks may be empty. Rank r starts with its neighbour r+1, so that no rank is the first target of all others.
    """
    ranks = len(member.node_names)
    incoming[member.rank][:] = outgoing[member.rank]
    targets = [(member.rank + distance) % ranks for distance in range(1, ranks)]
    async with asyncio.TaskGroup() as exchanges:
        for target in targets:
            exchanges.create_task(send_block(member, step, target, outgoing[target]))
        for source in reversed(targets):
            exchanges.create_task(receive_block(member, step, source, incoming[source]))


def _block_tag(member: GroupMember, step: int) -> MessageTag:
    return MessageTag(step, MessageKind.BLOCK.in_channel(member.channel))
