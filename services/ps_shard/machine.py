"""State machine of a parameter server, which decides on updates and replies.

It decides when to update its shard and to which workers to reply. It sends no messages and has no parameters.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from services.parameter_server.staleness import UNIFORM_WEIGHTING, AnyStalenessWeighting
from services.parameter_server.synchronisers.base import Synchroniser
from services.ps_shard.shard_actions import (
    ApplyUpdateAction,
    DropStalePushAction,
    SendReplyAction,
    ShardAction,
    WorkerPush,
)
from services.schema.errors import ProtocolError


class WorkerStepTiming(NamedTuple):
    """Duration of a worker's last step, and start time of its current step or wait.

    The duration excludes waiting time.
    """

    step_s: float
    started_s: float


@dataclass
class ShardStateMachine:
    """State machine of a parameter server, which updates a shard and replies to workers.

    A worker's clock is the number of steps that it has pushed. Invariant: every push is part of exactly one update or
    is dropped, and gets exactly one reply. Times are arguments, in seconds since any moment. Only dynamic synchronisers
    decide by them; replies report how long they were delayed. A server can continue the work of an earlier phase, with
    its version and number of samples.
    """

    worker_count: int
    synchroniser: Synchroniser
    staleness: AnyStalenessWeighting = UNIFORM_WEIGHTING
    version: int = 0
    samples: int = 0  # used for updates
    sample_budget: int | None = None  # samples after which workers stop; None: workers count steps
    # Whether workers stop only when the samples of the budget have arrived, not when other workers compute them: these
    # workers may be lost.
    holds_last_replies: bool = False
    push_samples: dict[int, int] = field(default_factory=dict)  # of each worker's last push, or of its expected first
    _gathered_pushes: list[WorkerPush] = field(default_factory=list)
    _pushes_awaiting_reply: dict[int, WorkerPush] = field(default_factory=dict)
    _worker_clocks: dict[int, int] = field(init=False)
    _computing_workers: set[int] = field(init=False)
    _stopping_workers: set[int] = field(default_factory=set)  # their last reply contained that the budget is used
    _step_timings: dict[int, WorkerStepTiming] = field(init=False)
    _recent_pushes: dict[int, tuple[WorkerPush, ...]] = field(default_factory=dict)  # a window of each worker's pushes
    _slow_windows: dict[int, int] = field(default_factory=dict)  # windows in a row in which a worker was too slow
    _granted_steps: dict[int, int] = field(
        default_factory=dict
    )  # last step that a worker may start without a new decision
    _is_asynchronous: bool = False  # whether a worker's next push waits for no other; sent in replies

    def __post_init__(self) -> None:
        self._worker_clocks = dict.fromkeys(range(self.worker_count), 0)
        self._computing_workers = set(self._worker_clocks)
        self._step_timings = dict.fromkeys(self._worker_clocks, WorkerStepTiming(0.0, 0.0))

    def resume_serving(self, next_step_by_worker: Mapping[int, int], now_s: float = 0.0) -> None:
        """Start or continue to serve workers.

        Workers are served from the time `now_s` on, each worker from its own next step.

        Raises:
            ProtocolError: a worker still waits for a reply.
        """
        if self.has_waiting_pushes:
            pushes = [*self._gathered_pushes, *self._pushes_awaiting_reply.values()]
            raise ProtocolError(f"the server can't resume while these pushes wait for an update or a reply: {pushes}")
        self._worker_clocks, self._computing_workers = dict(next_step_by_worker), set(next_step_by_worker)
        self._step_timings = {
            worker: self._step_timings[worker]._replace(started_s=now_s) for worker in next_step_by_worker
        }
        self._stopping_workers.clear()
        self._granted_steps.clear()
        self._is_asynchronous = False

    @property
    def has_waiting_pushes(self) -> bool:
        """Whether a push waits for an update or a reply."""
        return bool(self._gathered_pushes or self._pushes_awaiting_reply)

    def handle_push(self, push: WorkerPush, now_s: float = 0.0) -> list[ShardAction]:
        """Record a vector that a worker has pushed, and return the actions of the server.

        The push arrives at `now_s`; the actions are in order.

        Raises:
            ProtocolError: the worker has left or waits for a reply, or this is not its next step.
        """
        if push.worker not in self._computing_workers or push.step != self._worker_clocks[push.worker]:
            computing = sorted(self._computing_workers)
            raise ProtocolError(
                f"unexpected {push}; workers that may push: {computing}, next steps by worker: {self._worker_clocks}"
            )
        self._computing_workers.remove(push.worker)
        self._stopping_workers.discard(push.worker)
        self._worker_clocks[push.worker] += 1
        self.push_samples[push.worker] = push.samples
        self._step_timings[push.worker] = WorkerStepTiming(now_s - self._step_timings[push.worker].started_s, now_s)
        self._track_worker_slowness(push)
        asynchronous = push if push.is_asynchronous else None
        return [*self._accept_or_drop_push(push), *self._take_ready_updates(asynchronous), *self._due_replies(now_s)]

    def handle_leave(self, worker_rank: int, now_s: float = 0.0) -> list[ShardAction]:
        """Record that a worker leaves the training run.

        Return the actions for other workers, which no longer wait for its pushes.

        Raises:
            ProtocolError: the worker has left already, or waits for a reply.
        """
        if worker_rank not in self._computing_workers:
            computing = sorted(self._computing_workers)
            raise ProtocolError(f"worker {worker_rank} can't leave the run now; workers that may leave: {computing}")
        self._computing_workers.remove(worker_rank)
        del self._worker_clocks[worker_rank]
        return [*self._take_ready_updates(), *self._due_replies(now_s)]

    def handle_eviction(self, worker_rank: int, now_s: float = 0.0) -> list[ShardAction]:
        """Record that a worker is lost, whatever it was doing.

        Return the actions for other workers, which no longer wait for its pushes. Pushes that have arrived completely
        stay part of the next update.
        """
        self._computing_workers.discard(worker_rank)
        self._stopping_workers.discard(worker_rank)
        self._pushes_awaiting_reply.pop(worker_rank, None)
        self._worker_clocks.pop(worker_rank, None)
        return [*self._take_ready_updates(), *self._due_replies(now_s)]

    def _accept_or_drop_push(self, push: WorkerPush) -> Iterator[DropStalePushAction]:
        """Keep a worker's push for the next update, or drop the push if it is too stale.

        A push that is dropped can be replied to now, and so can every push if workers do not wait for the update.
        """
        staleness = self.version - push.version
        is_accepted = self.synchroniser.accepts_staleness(staleness) and self.staleness.accepts_staleness(staleness)
        if not (is_accepted and self.synchroniser.describe_worker_sync().replies_after_update):
            self._pushes_awaiting_reply[push.worker] = push
        if is_accepted:
            self._gathered_pushes.append(push)
            return
        yield DropStalePushAction(push, self.version)

    def _take_ready_updates(self, push_to_apply_alone: WorkerPush | None = None) -> Iterator[ApplyUpdateAction]:
        """Yield the updates of the shard that are due now.

        One update is due from a push that is applied alone, and one from the gathered pushes if enough workers have
        pushed. When all workers have left, the remaining pushes make the last update. The replies to all workers must
        agree: once one worker has to wait, all workers wait for each other.
        """
        self._is_asynchronous = self._is_asynchronous and bool(self.straggler_ranks)
        if push_to_apply_alone is not None and push_to_apply_alone in self._gathered_pushes:
            self._gathered_pushes.remove(push_to_apply_alone)
            yield self._make_update(push_to_apply_alone)
        if self._gathered_pushes and (not self._worker_clocks or self._is_update_complete):
            pushes = sorted(self._gathered_pushes, key=lambda push: (push.worker, push.step))
            self._gathered_pushes.clear()
            may_be_asynchronous = self.synchroniser.describe_worker_sync().is_asynchronous_with_stragglers
            self._is_asynchronous = may_be_asynchronous and bool(self.straggler_ranks)
            yield self._make_update(*pushes)

    def _make_update(self, *pushes: WorkerPush) -> ApplyUpdateAction:
        samples_before = self.samples
        self.version += 1
        self.samples += sum(push.samples for push in pushes)
        if self.synchroniser.describe_worker_sync().replies_after_update:
            present = {push.worker: push for push in pushes if push.worker in self._worker_clocks}
            self._pushes_awaiting_reply.update(present)  # a lost worker gets no reply
        return ApplyUpdateAction(pushes, self.version, samples_before)

    @property
    def _is_update_complete(self) -> bool:
        """Whether enough workers have pushed for the next update of the parameters."""
        stragglers = self.straggler_ranks
        if len(self._gathered_pushes) < self.synchroniser.gradient_quorum(len(self._worker_clocks), len(stragglers)):
            return False
        gathered_workers = {push.worker for push in self._gathered_pushes}
        return self.synchroniser.find_always_awaited_ranks(self._worker_clocks, stragglers) <= gathered_workers

    @property
    def straggler_ranks(self) -> frozenset[int]:
        """Ranks of the stragglers, which are workers that were too slow for some time.

        A straggler was too slow in several consecutive windows of steps.
        """
        if (watch := self.synchroniser.describe_worker_sync().straggler_criterion) is None:
            return frozenset()
        return frozenset(worker for worker in self._worker_clocks if self._slow_windows.get(worker, 0) >= watch.windows)

    def _track_worker_slowness(self, push: WorkerPush) -> None:
        """Update the count of consecutive windows of steps in which a worker was slow.

        The count is updated at a push of the worker. A worker is slow compared with all workers.
        """
        watch = self.synchroniser.describe_worker_sync().straggler_criterion
        if watch is None or not (push.compute_s and push.samples):
            return
        self._recent_pushes[push.worker] = (*self._recent_pushes.get(push.worker, ()), push)[-watch.window :]
        speeds = {
            worker: sum(recent.samples for recent in pushes) / sum(recent.compute_s for recent in pushes)
            for worker, pushes in self._recent_pushes.items()
            if worker in self._worker_clocks and len(pushes) == watch.window
        }
        own_speed = speeds.get(push.worker)
        is_slow = own_speed is not None and watch.is_slow(own_speed, list(speeds.values()))
        self._slow_windows[push.worker] = self._slow_windows.get(push.worker, 0) + 1 if is_slow else 0

    def _due_replies(self, now_s: float) -> Iterator[SendReplyAction]:
        """Yield the server's replies to all workers that may start their next step now."""
        for worker, push in sorted(self._pushes_awaiting_reply.items()):
            if self._may_start_step(worker, push.step + 1, now_s) and not self._is_last_reply_held(push):
                del self._pushes_awaiting_reply[worker]
                pending_samples = self._count_unapplied_samples(push)
                self._computing_workers.add(worker)
                if self.sample_budget is not None and self.samples + pending_samples >= self.sample_budget:
                    self._stopping_workers.add(worker)
                waited_s = now_s - self._step_timings[worker].started_s
                self._step_timings[worker] = self._step_timings[worker]._replace(started_s=now_s)
                yield SendReplyAction(worker, push.step, pending_samples, waited_s, self._is_asynchronous)

    def _is_last_reply_held(self, push_being_answered: WorkerPush) -> bool:
        """Return whether a reply by which a worker would stop is held until the samples of other workers have arrived.

        If one of these workers is lost instead, the worker that waits computes the missing samples.
        """
        if not self.holds_last_replies or self.sample_budget is None:
            return False
        arrived = self.samples + sum(push.samples for push in self._gathered_pushes)
        return arrived < self.sample_budget <= self.samples + self._count_unapplied_samples(push_being_answered)

    def _may_start_step(self, worker_rank: int, step: int, now_s: float) -> bool:
        """Return whether a worker may start its next step now.

        The current time is `now_s`.
        """
        slowest_clock = min(self._worker_clocks.values())
        if self.synchroniser.may_start_step(step, slowest_clock) or step <= self._granted_steps.get(worker_rank, -1):
            return True
        slowest_workers = (rank for rank, clock in self._worker_clocks.items() if clock == slowest_clock)
        slowest = max(slowest_workers, key=self._predicted_step_finish_s)
        extra_steps = self.synchroniser.count_allowed_extra_steps(
            steps_ahead_of_slowest=step - slowest_clock,
            own_step_s=self._step_timings[worker_rank].step_s,
            slowest_remaining_s=max(0.0, self._predicted_step_finish_s(slowest) - now_s),
            slowest_worker_step_s=self._step_timings[slowest].step_s,
        )
        self._granted_steps[worker_rank] = step + extra_steps - 1
        return extra_steps > 0

    def _predicted_step_finish_s(self, worker_rank: int) -> float:
        """Return the predicted time at which a worker finishes its current step.

        The step is assumed to take as long as the worker's previous step.
        """
        timing = self._step_timings[worker_rank]
        return timing.started_s + timing.step_s

    def _count_unapplied_samples(self, push_being_answered: WorkerPush) -> int:
        """Return the number of samples that are not yet part of an update.

        These samples are in pushes that wait for an update, and in steps that workers are computing. A worker that has
        not pushed yet is assumed to compute as many samples as the worker that gets the reply.
        """
        gathered_samples = sum(push.samples for push in self._gathered_pushes)
        return gathered_samples + sum(
            self.push_samples.get(worker, push_being_answered.samples)
            for worker in self._computing_workers - self._stopping_workers
        )
