"""Runtime of a shard's server, which updates the shard with pushed vectors.

It receives the vectors that workers push, updates the shard and sends replies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.compressors import Compressor, CompressorSeed, bytes_to_vector
from services.parameter_server.server_state import ServerState
from services.parameter_server.update_rules import UpdateRule, WorkerContribution
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.replies import IDENTITY_COMPRESSOR, ReplyEncoder
from services.ps_shard.shard_actions import (
    ApplyUpdateAction,
    DropStalePushAction,
    SendReplyAction,
    ShardAction,
    WorkerPush,
)
from services.runtime.clock import Clock
from services.runtime.control import FinalNodeReport
from services.runtime.run_log import LogEventBatch
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray, without_divergence_warnings
from services.schema.errors import NetworkError, ProtocolError


async def do_nothing() -> None:
    """Do nothing after an update of the shard."""


@dataclass
class BusyTime:
    """Virtual seconds for which a node has computed so far, over all training phases."""

    seconds: float = 0.0


@dataclass
class ServerRuntime:
    """Server of one shard of the parameter vector, and its connections to the workers.

    Arrays are in host memory.
    """

    worker_names: tuple[str, ...]  # node names by rank
    update_rule: UpdateRule  # with the parameters of the shard
    compressor: Compressor  # of the pushed vectors
    machine: ShardStateMachine
    transport: Transport
    clock: Clock
    shard_number: int
    update_log: LogEventBatch  # pushes in the order of their updates; a replay of them gives the same parameters
    drop_log: LogEventBatch  # dropped pushes, in the same columns; version: of the parameters when the push arrived
    busy_time: BusyTime = field(default_factory=BusyTime)  # of updates
    reply_compressor: Compressor = IDENTITY_COMPRESSOR
    reply_seed: CompressorSeed = field(default_factory=CompressorSeed)
    on_update: Callable[[], Awaitable[None]] = do_nothing  # called after each update, before the replies
    # Called with the name of a worker that can't be reached; returns whether the server can finish without it. If not,
    # and if it is None, the error of the worker ends the serving.
    await_loss: Callable[[str], Awaitable[bool]] | None = None
    next_steps: dict[int, int] = field(init=False)  # rank -> next step; workers that have left are missing
    _replies: ReplyEncoder = field(init=False)
    _vectors: dict[WorkerPush, HostArray] = field(default_factory=dict)
    _stale_params: dict[WorkerPush, HostArray] = field(default_factory=dict)  # parameters that a push was computed from
    _last_update_s: float = 0.0
    _reply_tasks: asyncio.TaskGroup = field(init=False)  # of replies, and of the handlers of workers
    _worker_tasks: dict[int, asyncio.Task[bool]] = field(default_factory=dict)  # handlers of pushes, by rank

    def __post_init__(self) -> None:
        self.next_steps = dict.fromkeys(range(len(self.worker_names)), 0)
        self._replies = ReplyEncoder(
            self.reply_compressor,
            self.reply_seed,
            self.update_rule.params,
            keeps_sent_params=self.update_rule.needs_stale_params,
        )

    async def serve_workers(self) -> bool:
        """Serve the workers until every worker has left the run or stopped for a switch.

        Return whether any worker has stopped for a strategy switch.
        """
        self.machine.resume_serving(self.next_steps, self.clock.now())
        async with asyncio.TaskGroup() as self._reply_tasks:
            self._worker_tasks = {
                rank: self._reply_tasks.create_task(self._handle_pushes_of_worker(rank)) for rank in self.next_steps
            }
        self.update_log.flush()
        self.drop_log.flush()
        return any(task.result() for task in self._worker_tasks.values() if not task.cancelled())

    async def evict_worker(self, worker_name: str) -> None:
        """Serve a lost worker no longer, so that no other worker waits for its pushes."""
        rank = self.worker_names.index(worker_name)
        self.next_steps.pop(rank, None)
        task = self._worker_tasks[rank]
        if not task.done():
            task.cancel()
            await self._run_shard_actions(self.machine.handle_eviction(rank, self.clock.now()))
        self.transport.forget_lost_peers([worker_name], 0)

    @property
    def final_shard_state(self) -> FinalNodeReport:
        """Final state of the shard, which the server sends to the coordinator.

        It consists of the parameters, the version and the number of samples.
        """
        return FinalNodeReport(self.update_rule.params.tobytes(), self.machine.version, self.machine.samples)

    def copy_state(self) -> ServerState:
        """Return the state of this server for a checkpoint.

        Speeds of workers, by which some synchronisers find stragglers, are not part of it: they are measured anew.

        Raises:
            ProtocolError: a push waits for an update or a reply.
        """
        machine = self.machine
        if machine.has_waiting_pushes:
            raise ProtocolError("the state of a server can't be stored while a push waits for an update or a reply")
        return ServerState(
            self.update_rule.copy_state(),
            machine.version,
            machine.samples,
            dict(machine.push_samples),
            dict(self.next_steps),
            self._replies.copy_replicas(),
        )

    def restore_state(self, server_state: ServerState) -> None:
        """Continue from a state that `copy_state` has returned; call `serve_workers` afterwards."""
        self.update_rule.restore_state(server_state.update_rule_state)
        self.machine.version, self.machine.samples = server_state.version, server_state.samples
        self.machine.push_samples = dict(server_state.push_samples)
        self.next_steps = dict(server_state.next_steps)
        self._replies.restore_replicas(server_state.replicas)

    async def _handle_pushes_of_worker(self, worker_rank: int) -> bool:
        """Handle the pushes of one worker until the worker leaves or stops.

        Return whether the worker stopped for a strategy switch.
        """
        try:
            return await self._serve_worker(worker_rank)
        except NetworkError:
            if not await self._can_finish_without(self.worker_names[worker_rank]):
                raise
            return False

    async def _serve_worker(self, worker_rank: int) -> bool:
        """Receive and handle the pushes of one worker; see `_handle_pushes_of_worker`."""
        while isinstance(push := await self._receive_push(worker_rank, self.next_steps[worker_rank]), WorkerPush):
            await self._run_shard_actions(self.machine.handle_push(push, self.clock.now()))
            self.next_steps[worker_rank] += 1
        # In both cases no other worker may wait for further pushes of this one.
        await self._run_shard_actions(self.machine.handle_leave(worker_rank, self.clock.now()))
        if push == MessageKind.LEAVE:
            del self.next_steps[worker_rank]
        return push == MessageKind.STRATEGY_SWITCH

    async def _receive_push(self, worker_rank: int, step: int) -> WorkerPush | int:
        """Return the vector that a worker has pushed for the step `step`.

        If the worker leaves or stops for a switch, return the kind of its message.
        """
        worker_name, end_stages = self.worker_names[worker_rank], (MessageKind.LEAVE, MessageKind.STRATEGY_SWITCH)
        tags = (MessageTag(step, MessageKind.PUSH), *(MessageTag(step, stage) for stage in end_stages))
        message = await self.transport.receive(worker_name, *tags)
        if message.tag.kind in end_stages:
            return message.tag.kind
        size, dtype = self.update_rule.params.size, self.update_rule.params.dtype.name
        data = np.empty(self.compressor.compressed_size_bytes(size, dtype), np.uint8)
        await receive_remaining_pieces(self.transport, worker_name, message, data)
        push = WorkerPush(worker_rank, step, message.version, message.samples, message.update_s, message.skips_wait)
        self._vectors[push] = bytes_to_vector(self.compressor, data, size, dtype)
        if self.update_rule.needs_stale_params:
            self._stale_params[push] = self._replies.worker_params(worker_rank)
        return push

    async def _run_shard_actions(self, shard_actions: Sequence[ShardAction]) -> None:
        self._last_update_s = 0.0  # a reply without an update has not waited for one
        for action in sorted(shard_actions, key=self._action_sort_key):
            self._run_shard_action(action)
            if isinstance(action, ApplyUpdateAction):
                await self.on_update()

    def _action_sort_key(self, action: ShardAction) -> int:
        """Return the sort key of an action of the server: updates first, then replies.

        The order of the replies differs by server. If all servers replied to the same worker first, their messages
        would queue at its link while other links idle.
        """
        return (
            (action.worker - self.shard_number - 1) % len(self.worker_names)
            if isinstance(action, SendReplyAction)
            else -1
        )

    def _run_shard_action(self, shard_action: ShardAction) -> None:
        match shard_action:
            case ApplyUpdateAction():
                self._apply_update(shard_action)
            case DropStalePushAction(push, version):
                del self._vectors[push]
                self._stale_params.pop(push, None)
                self.drop_log.add_event(
                    _make_push_log_row(push, version, version - push.version, self.clock.timestamp_ms())
                )
            case SendReplyAction():
                self._reply_tasks.create_task(
                    self._send_or_await_loss(self.worker_names[shard_action.worker], self._send_reply(shard_action))
                )

    def _apply_update(self, update: ApplyUpdateAction) -> None:
        started_s, started_ms = self.clock.now(), self.clock.timestamp_ms()
        contributions = [
            self._make_worker_contribution(push, update.count_updates_behind(push)) for push in update.pushes
        ]
        with without_divergence_warnings():
            self.update_rule.update_shard_params(contributions, update.samples_before)
        self._last_update_s = self.clock.now() - started_s
        self.busy_time.seconds += self._last_update_s
        for push in update.pushes:
            self.update_log.add_event(
                _make_push_log_row(push, update.version, update.count_updates_behind(push), started_ms)
            )

    def _make_worker_contribution(self, worker_push: WorkerPush, staleness: int) -> WorkerContribution:
        vector, params_read = self._vectors.pop(worker_push), self._stale_params.pop(worker_push, None)
        return WorkerContribution(worker_push.worker, worker_push.samples, staleness, vector, params_read)

    async def _send_or_await_loss(self, worker_name: str, sending: Coroutine[None, None, None]) -> None:
        try:
            await sending
        except NetworkError:
            if not await self._can_finish_without(worker_name):
                raise

    async def _can_finish_without(self, worker_name: str) -> bool:
        return self.await_loss is not None and await self.await_loss(worker_name)

    def _send_reply(self, reply: SendReplyAction) -> Coroutine[None, None, None]:
        """Return a coroutine that sends a worker the current parameters of the shard."""
        vector, machine = self.update_rule.make_push_reply_vector(reply.worker), self.machine
        with without_divergence_warnings():
            encoded = self._replies.encode_reply(reply.worker, vector)
        message = Message(
            MessageTag(reply.step, MessageKind.REPLY),
            version=machine.version,
            samples=machine.samples,
            pending_samples=reply.pending_samples,
            update_s=self._last_update_s,
            waited_s=reply.waited_s,
            skips_wait=reply.next_is_asynchronous,
        )
        return send_vector(self.transport, self.worker_names[reply.worker], message, encoded)


def _make_push_log_row(push: WorkerPush, params_version: int, staleness: int, timestamp_ms: float) -> tuple[float, ...]:
    return (params_version, push.worker, push.step, staleness, push.samples, round(timestamp_ms / 1e3, 6))
