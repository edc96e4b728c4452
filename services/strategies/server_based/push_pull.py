"""Push and pull: a worker sends a vector to the shard owners and gets their replies.

A shard is a range of the vector. Its owner is a node.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from services.compressors import Compressor, CompressorSeed, bytes_to_vector, fit_to_range, payload_to_bytes
from services.learning.layout import VectorRange
from services.runtime.run_log import StepTimer
from services.runtime.transport import Message, MessageKind, MessageTag
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray, Vector
from services.strategies.base import IDENTITY_COMPRESSOR, StepResult, WorkerAlgorithm


class PushState(NamedTuple):
    """State that a worker keeps for one shard (range of the parameter vector).

    The state consists of the version of the parameters and the state of the compressor.
    """

    version: int  # of the parameters that the worker holds
    compressor_state: Any
    next_push_alone: bool = False  # whether the next push is an update of its own; the first shard decides for all


class ShardReplies(NamedTuple):
    """Replies of all shard owners to one push of a worker."""

    vector: HostArray  # the whole vector
    shard_states: tuple[PushState, ...]  # by shard
    staleness: float  # mean over shards
    samples: int  # as the first shard counts them
    pending_samples: int


@dataclass(frozen=True)
class PushPullWorker(WorkerAlgorithm):
    """Worker algorithm that pushes a vector to all shard owners and waits for their replies."""

    compressor: Compressor  # of pushes
    reply_compressor: Compressor  # others than identity encode the difference to this worker's parameters

    @property
    def receiver_names(self) -> tuple[str, ...]:
        return tuple(self.context.shard_owners)

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:  # noqa: ARG002 - every step is pushed
        await self.announce_last_push(leave_step)
        return step_result.params

    async def announce_last_push(self, push_count: int) -> None:
        """Inform all shard owners that this worker makes no push from the number `push_count` on."""
        for owner in self.context.shard_owners:
            await self.context.transport.send(owner, Message(MessageTag(push_count, MessageKind.LEAVE)))

    def make_initial_push_states(self) -> tuple[PushState, ...]:
        """Return the state of each shard before the first push.

        All nodes start with version 0 of the parameters.
        """
        context, shard_count = self.context, len(self.context.shards)
        return tuple(
            PushState(
                0,
                fit_to_range(self.compressor, *shard).init_state(
                    shard.size, CompressorSeed(context.seed, context.rank * shard_count + shard_number)
                ),
            )
            for shard_number, shard in enumerate(context.shards)
        )

    async def exchange_with_shards(
        self,
        push_number: int,
        vector: Vector,
        sample_count: int,
        shard_states: Sequence[PushState],
        step_timer: StepTimer,
        params: Vector,
    ) -> ShardReplies:
        """Push `vector` to all shard owners at once, and wait for all replies.

        Pushes are numbered from 0. The reply that arrives last determines the times: its server's update counts as
        `update`, and the time for which the server delayed the reply until other workers had pushed counts as `wait`.
        The rest is `exchange`. `params` are the parameters to which replies may be differences.
        """
        received = self._prepare_reply_vector(params)
        compute_s, alone = step_timer.seconds.get("compute", 0.0), shard_states[0].next_push_alone
        push = Message(
            MessageTag(push_number, MessageKind.PUSH), samples=sample_count, update_s=compute_s, skips_wait=alone
        )
        replies: dict[int, tuple[Message, PushState]] = {}  # in the order of their arrival

        async def push_and_store_reply(shard_number: int) -> None:
            replies[shard_number] = await self._push_shard_and_await_reply(
                push, shard_number, shard_states[shard_number], vector, received
            )

        with step_timer.measure_phase("exchange"):
            async with asyncio.TaskGroup() as group:  # the first failure cancels the others
                for shard in self._push_order(len(shard_states)):
                    group.create_task(push_and_store_reply(shard))
        *_, (last_reply, _) = replies.values()
        step_timer.add_seconds("exchange", -last_reply.waited_s - last_reply.update_s)
        step_timer.add_seconds("wait", last_reply.waited_s)
        step_timer.add_seconds("update", last_reply.update_s)
        new_states = tuple(replies[shard][1] for shard in range(len(shard_states)))
        staleness = [new.version - old.version - 1 for new, old in zip(new_states, shard_states, strict=True)]
        first_reply, _ = replies[0]  # of the first shard
        mean_staleness = float(np.mean(staleness))
        return ShardReplies(received, new_states, mean_staleness, first_reply.samples, first_reply.pending_samples)

    def _prepare_reply_vector(self, params: Vector) -> HostArray:
        """Return a new vector in host memory for the replies: with `params`, if replies are differences to them."""
        if self.reply_compressor == IDENTITY_COMPRESSOR:
            return np.empty(params.shape, params.dtype)
        return np.array(self.context.device.to_host(params))

    def _push_order(self, shard_count: int) -> tuple[int, ...]:
        """Return the order in which this worker pushes to the shards.

        Every worker starts with another shard. Otherwise all would queue for one link while the other links are idle.
        """
        return tuple((self.context.rank + 1 + offset) % shard_count for offset in range(shard_count))

    async def _push_shard_and_await_reply(
        self, push_header: Message, shard_number: int, push_state: PushState, pushed: Vector, reply_vector: HostArray
    ) -> tuple[Message, PushState]:
        """Push one shard (range) of a vector to its owner, and wait for the reply.

        The reply is written into the same range of the reply vector.

        Returns:
            The first piece of the reply, and the next state of the shard.
        """
        context, owner, owned = self.context, self.context.shard_owners[shard_number], self.context.shards[shard_number]
        compressor = fit_to_range(self.compressor, *owned)
        payload, compressor_state = compressor.compress(owned.view(pushed), push_state.compressor_state)
        push = push_header._replace(version=push_state.version)
        await send_vector(context.transport, owner, push, payload_to_bytes(payload, context.device.to_host))
        reply = await context.transport.receive(owner, MessageTag(push_header.tag.step, MessageKind.REPLY))
        await self._receive_reply(owner, reply, owned, reply_vector)
        return reply, PushState(reply.version, compressor_state, reply.skips_wait)

    async def _receive_reply(
        self, owner: str, first_piece: Message, owned: VectorRange, reply_vector: HostArray
    ) -> None:
        """Receive a reply, and write or add it to the shard (range) of the reply vector, in place."""
        shard, transport = owned.view(reply_vector), self.context.transport
        compressor = fit_to_range(self.reply_compressor, *owned)
        if compressor == IDENTITY_COMPRESSOR:
            await receive_remaining_pieces(transport, owner, first_piece, shard)
            return
        wire_bytes = np.empty(compressor.compressed_size_bytes(shard.size, shard.dtype.name), np.uint8)
        await receive_remaining_pieces(transport, owner, first_piece, wire_bytes)
        shard += bytes_to_vector(compressor, wire_bytes, shard.size, shard.dtype.name)
