"""Push and pull: a worker's exchange with all shard owners."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from services.compressors import Compressor, to_wire
from services.runtime.run_log import StepTimes
from services.runtime.transport import Message, MessageKind, MessageTag
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray, Vector
from services.strategies.base import WorkerAlgorithm


class ShardState(NamedTuple):
    """What a worker keeps about one shard."""

    version: int  # of the parameters that the worker holds
    compressor_state: Any
    alone: bool = False  # whether the next push waits for no other worker; the value of the first shard counts for all


class ShardReplies(NamedTuple):
    """The replies of all shards to one push."""

    vector: HostArray  # the whole vector
    shard_states: tuple[ShardState, ...]  # by shard
    staleness: float  # mean over shards
    samples: int  # as the first shard counts them
    pending_samples: int


@dataclass(frozen=True)
class PushPullWorker(WorkerAlgorithm):
    """A worker that pushes a vector to all shard owners and waits for their replies."""

    compressor: Compressor  # of pushes

    @property
    def send_targets(self) -> tuple[str, ...]:
        return tuple(self.context.shard_owners)

    async def leave(self, step: int) -> None:
        for owner in self.context.shard_owners:
            await self.context.transport.send(owner, Message(MessageTag(step, MessageKind.LEAVE)))

    def initial_shard_states(self) -> tuple[ShardState, ...]:
        """Return what a worker knows before the first push: version 0 is the same everywhere."""
        return tuple(ShardState(0, self.compressor.init(shard.size)) for shard in self.context.shards)

    async def push_pull(
        self, number: int, vector: Vector, samples: int, shard_states: Sequence[ShardState], times: StepTimes
    ) -> ShardReplies:
        """Push `vector`, the push with this number from 0, to all shards at once and wait for all replies.

        Of the reply that arrives last, the server's update counts as `update`, and the time for which the server held
        it back until other workers had pushed counts as `wait`. The rest is `exchange`.
        """
        received = np.empty(vector.shape, vector.dtype)
        compute_s, alone = times.seconds.get("compute", 0.0), shard_states[0].alone
        header = Message(MessageTag(number, MessageKind.PUSH), samples=samples, update_s=compute_s, skips_wait=alone)
        replies: dict[int, tuple[Message, ShardState]] = {}  # in the order of their arrival

        async def exchange(shard: int) -> None:
            replies[shard] = await self._push_pull_shard(header, shard, shard_states[shard], vector, received)

        with times.measure("exchange"):
            async with asyncio.TaskGroup() as group:  # the first failure cancels the others
                for shard in self._shard_order(len(shard_states)):
                    group.create_task(exchange(shard))
        *_, (last, _) = replies.values()
        times.add_seconds("exchange", -last.waited_s - last.update_s)
        times.add_seconds("wait", last.waited_s)
        times.add_seconds("update", last.update_s)
        new_states = tuple(replies[shard][1] for shard in range(len(shard_states)))
        staleness = [new.version - old.version - 1 for new, old in zip(new_states, shard_states, strict=True)]
        first, _ = replies[0]
        return ShardReplies(received, new_states, float(np.mean(staleness)), first.samples, first.pending_samples)

    def _shard_order(self, shards: int) -> tuple[int, ...]:
        """Every worker starts with another shard: otherwise all queue for one link while the other links are idle."""
        return tuple((self.context.rank + 1 + later) % shards for later in range(shards))

    async def _push_pull_shard(
        self, header: Message, shard: int, state: ShardState, vector: Vector, received: HostArray
    ) -> tuple[Message, ShardState]:
        """Push one shard's range of the vector and fill its range of `received`; return the reply's first piece."""
        context, owner, owned = self.context, self.context.shard_owners[shard], self.context.shards[shard]
        payload, compressor_state = self.compressor.compress(owned.view(vector), state.compressor_state)
        push = header._replace(version=state.version)
        await send_vector(context.transport, owner, push, to_wire(payload, context.device.to_host))
        reply = await context.transport.receive(owner, MessageTag(header.tag.step, MessageKind.REPLY))
        await receive_remaining_pieces(context.transport, owner, reply, owned.view(received))
        return reply, ShardState(reply.version, compressor_state, reply.skips_wait)
