"""Steps of a training script, recognised by its collectives, backward passes and updates, by the package's rules."""

import threading
from collections.abc import Callable
from typing import Protocol

from .pacer import Pacer
from .step_records import CollectiveRecord, StepRecord, unseen_wait
from .time_intervals import Interval, seconds_outside

IGNORE, RECORD, SKIP = "ignore", "record", "skip"  # what becomes of evaluations: steps may begin at their ends
MAIN_THREAD = threading.main_thread().ident


class StepReceiver(Protocol):
    """Receiver of finished steps."""

    def begin_training(self, begin_s: float) -> float | None:
        """Take the begin of the first step; return its compute time in seconds, or None: not paced."""

    def receive_step(self, step: StepRecord) -> float | None:
        """Take a finished step; return the compute time of the next one in seconds, or None: not paced."""


class StepTracker:
    """Assigns what a script does to steps, paces it, and hands finished steps to a receiver.

    Only the main thread is paced, and only its waiting counts as exposed communication.
    """

    def __init__(
        self, clock: Callable[[], float], pacer: Pacer, receiver: StepReceiver, evaluations: str = IGNORE
    ) -> None:
        """Create a tracker; `evaluations` is one of IGNORE, RECORD and SKIP."""
        self.clock, self._pacer, self._receiver, self._evaluations = clock, pacer, receiver, evaluations
        self._number = 0
        self._created_s = clock()
        self._begin_s: float | None = None  # None before the first step
        self._first_forward: tuple[float, int] | None = None  # its begin, and the number of collectives before it
        self._forward_depth = self._backward_depth = 0
        self._updates_running: list[int] = []  # optimisers, by identity: an optimiser may call another one
        self._updates_per_step = 1  # as in the last step
        self._start_collectives: list[CollectiveRecord] = []
        self._awaits_forward = True  # of the next step, with gradient
        self._evaluation_end_s = 0.0
        self._reset_step()

    def _reset_step(self) -> None:
        self._collectives: list[CollectiveRecord] = []
        self._waits: list[Interval] = []
        self._blocked_s = self._blocked_before_update_s = 0.0
        self._update_begin_s: float | None = None
        self._end_s = 0.0
        self._updates = 0
        self._is_evaluating = self._follows_evaluation = False
        self._pacer.begin_step(self._number)

    @property
    def watches_forward_passes(self) -> bool:
        """Return whether forward passes have to be marked: before the first step, and between steps."""
        return self._begin_s is None or (self._awaits_forward and self._evaluations != IGNORE)

    @property
    def collectives(self) -> list[CollectiveRecord]:
        """Return the collectives of the step that has not ended."""
        return self._collectives

    # Forward passes, which mark the begin of the first step, and evaluations between steps.

    def begin_forward(self, *, has_gradient: bool) -> None:
        """Mark the begin of a module's forward pass."""
        if self._begin_s is None:
            if has_gradient and self._forward_depth == 0 and self._first_forward is None:
                self._first_forward = self.clock(), len(self._collectives)
            self._forward_depth += 1
        elif not self._awaits_forward or self._updates_running or not _is_main_thread():
            return
        elif has_gradient:
            self._awaits_forward = False
            self._end_evaluation()
        else:
            self.finish_updated_step()
            self._is_evaluating, self._evaluation_end_s = True, self.clock()

    def end_forward(self) -> None:
        """Mark the end of a module's forward pass."""
        if self._begin_s is None:
            self._forward_depth -= 1
        elif self._is_evaluating and _is_main_thread():
            self._evaluation_end_s = self.clock()

    def _end_evaluation(self) -> None:
        """Let the step begin at the end of the evaluation before it, if there was one that is no part of it."""
        if not self._is_evaluating:
            return
        self._is_evaluating, self._follows_evaluation = False, True
        if self._evaluations == SKIP:
            self._begin_s, self._blocked_s = self._evaluation_end_s, 0.0
            self._waits.clear()
            self._pacer.begin_step(self._number)

    def _begin_first_step(self) -> None:
        self._begin_s, start_count = self._first_forward or (self._created_s, 0)
        self._start_collectives = self._collectives[:start_count]
        self._collectives = self._collectives[start_count:]
        self._waits = [wait for wait in self._waits if wait[0] >= self._begin_s]
        self._blocked_s = sum(end - begin for begin, end in self._waits)
        self._pacer.compute_s = self._receiver.begin_training(self._begin_s)

    # Collectives.

    def launch(self, operation: str, size: int, dtype: str, group_size: int, *, is_async: bool) -> CollectiveRecord:
        """Record a call of a collective, after a sleep until its scheduled time in the step."""
        self.finish_updated_step()
        launch_s = begin_s = self.clock()
        record = CollectiveRecord(operation, size, dtype, group_size, is_async, launch_s, begin_s)
        if self._begin_s is not None:
            self._pace_launch(record, self._begin_s)
        elif self._forward_depth == 0:
            self._first_forward = None
        self._collectives.append(record)
        return record

    def _pace_launch(self, record: CollectiveRecord, step_begin_s: float) -> None:
        """Sleep until the scheduled time of a collective of the step; mark it as extra if it has none."""
        if self._is_evaluating and self._evaluations == SKIP:
            record.is_extra = True
            return
        kind = record.operation, record.bytes, record.dtype
        shares = self._pacer.match_collective(kind, len(self._collectives))
        if shares is None:
            record.is_extra = True
        elif self._update_begin_s is None and _is_main_thread():
            self._pacer.pace_until(shares.launch, step_begin_s, self._blocked_s)
            record.wait_share, record.begin_s = shares.wait, self.clock()

    def complete(self, record: CollectiveRecord) -> None:
        """Record that a collective is complete. Any thread may call this."""
        if record.end_s is None:
            record.end_s = self.clock()
            record.is_done = None

    def _complete_done_collectives(self) -> None:
        """Record the complete collectives that gloo's thread, which waits for Python's lock, has not recorded."""
        for record in self._collectives:
            is_done = record.is_done  # another thread may remove it
            if is_done is not None and is_done():
                self.complete(record)

    def begin_wait(self, record: CollectiveRecord) -> float:
        """Record that the script waits for a handle from now on, after a sleep until its scheduled time.

        Return the begin of the wait.
        """
        is_of_step = self._begin_s is not None and record.begin_s >= self._begin_s and self._update_begin_s is None
        if record.wait_begin_s is None and record.wait_share is not None and is_of_step and _is_main_thread():
            self._pacer.pace_until(record.wait_share, self._begin_s or 0.0, self._blocked_s)
        begin_s = self.clock()
        record.wait_begin_s = begin_s if record.wait_begin_s is None else record.wait_begin_s
        return begin_s

    def record_wait(self, record: CollectiveRecord, wait_begin_s: float) -> None:
        """Record that the calling thread has waited for a collective until now."""
        self.complete(record)
        record.wait_begin_s = wait_begin_s if record.wait_begin_s is None else record.wait_begin_s
        if _is_main_thread():
            wait = record.begin_s if not record.is_asynchronous else wait_begin_s, self.clock()
            self._waits.append(wait)
            self._blocked_s += wait[1] - wait[0]
            if self._is_evaluating:
                self._evaluation_end_s = wait[1]

    # Backward passes and updates.

    def begin_backward(self) -> None:
        """Mark the begin of a backward pass."""
        self.finish_updated_step()
        self._end_evaluation()
        self._awaits_forward = False
        self._backward_depth += 1
        if self._begin_s is None:
            self._first_forward = self._first_forward or (self.clock(), len(self._collectives))
            self._begin_first_step()

    def end_backward(self) -> None:
        """Mark the end of a backward pass."""
        self._backward_depth -= 1
        if self._backward_depth == 0:
            self._complete_done_collectives()

    def begin_update(self, optimiser: int) -> None:
        """Mark the begin of an optimiser's update, after a sleep until its scheduled time."""
        if optimiser in self._updates_running:  # its last update has failed
            del self._updates_running[self._updates_running.index(optimiser) :]
        self._updates_running.append(optimiser)
        if self._begin_s is None:
            self._begin_first_step()
        if self._update_begin_s is None and self._begin_s is not None:
            self._end_evaluation()
            self._add_unseen_wait(self._begin_s)
            self._pacer.pace_update(self._begin_s, self._blocked_s)
            self._update_begin_s, self._blocked_before_update_s = self.clock(), self._blocked_s

    def _add_unseen_wait(self, step_begin_s: float) -> None:
        self._complete_done_collectives()
        wait = unseen_wait(self._collectives, step_begin_s)
        if wait is not None:
            self._blocked_s += seconds_outside([wait], self._waits)
            self._waits.append(wait)

    def end_update(self, optimiser: int) -> None:
        """Mark the end of an update; sleep until the step's end, after as many updates as the last step had."""
        if optimiser not in self._updates_running or self._update_begin_s is None:
            return
        del self._updates_running[self._updates_running.index(optimiser) :]
        if self._updates_running:
            return
        self._updates += 1
        if self._updates >= self._updates_per_step:
            self._pacer.pace_step_end(self._update_begin_s, self._blocked_s - self._blocked_before_update_s)
        self._end_s = self.clock()
        self._awaits_forward = True

    def finish_updated_step(self) -> None:
        """Hand the step to the receiver, if it has been updated, because the next step begins."""
        if self._updates == 0 or self._updates_running or self._begin_s is None or self._update_begin_s is None:
            return
        self._complete_done_collectives()
        step = StepRecord(
            self._number,
            self._begin_s,
            self._update_begin_s,
            self._end_s,
            self._start_collectives,
            self._collectives,
            self._waits,
            self._follows_evaluation,
        )
        self._number += 1
        self._begin_s, self._updates_per_step, self._start_collectives = self._end_s, self._updates, []
        self._reset_step()
        self._pacer.compute_s = self._receiver.receive_step(step)


def _is_main_thread() -> bool:
    return threading.get_ident() == MAIN_THREAD
