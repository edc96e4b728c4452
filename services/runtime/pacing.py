"""Pacing of a worker's compute, at the speed of the host or of an emulated device.

The speed is as fast as the host, or exactly as fast as the device that the worker emulates. A worker that emulates a
device does the real compute in its own time slot within the step. Then it waits for the absolute deadline of the step
phase. So the step takes as long as on the declared device, however busy the host is. Missed deadlines are recorded.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from services.runtime.clock import Clock
from services.runtime.slowdowns import WorkerSlowdowns

Result = TypeVar("Result")

# Workers that a barrier wakes together queue behind each other's compute, and would read their start time too late. A
# guard sleep before the compute lets all of them read it first (8 workers on two cores: steps 24 % too long without it,
# 2 % with it).
GUARD_WALL_S = 0.002
MAX_GUARD_SHARE = 0.25  # of a short step
MAX_CATCH_UP_SHARE = 0.25  # of a step: lateness of the previous step that the next one makes up for
COMPUTE_TIME_SMOOTHING = 0.8  # weight of the past in the running mean of the compute time
# A backward pass multiplies by weights and by activations, a forward pass by weights alone: twice the work.
FORWARD_SHARE = 1 / 3
SINGLE_BUCKET = (1.0,)
ReportBucket: TypeAlias = Callable[[], object]  # called when the next bucket of the gradient is ready
# A deadline is missed when the delay exceeds all of three limits: the precision of timers on a busy host, a share of
# the step phase, and a share of the step below which the delay has no visible effect on a result.
MAX_LATE_WALL_S, MAX_LATE_PHASE_SHARE, MAX_LATE_STEP_SHARE = 0.001, 0.05, 0.01


def is_phase_deadline_missed(clock: Clock, lateness_s: float, phase_duration_s: float, step_duration_s: float) -> bool:
    """Return whether the end of a step phase counts as a missed deadline.

    The phase has ended `lateness_s` virtual seconds late.
    """
    max_late_s = MAX_LATE_WALL_S / clock.to_wall_s(1.0)
    return lateness_s > max(max_late_s, MAX_LATE_PHASE_SHARE * phase_duration_s, MAX_LATE_STEP_SHARE * step_duration_s)


class TimedComputeResult(NamedTuple, Generic[Result]):
    """Result of a worker's compute in one step, with the times that it took.

    The times are measured in virtual seconds.
    """

    result: Result
    late_s: float | None = None  # after the declared device; None: no device was declared
    forward_s: float | None = None  # duration of the forward pass; None: not measured separately
    backward_s: float | None = None
    early_s: float = 0.0  # by which the emulated device began before the step


class EmulatedDeviceFinishTimes(NamedTuple):
    """Finish times of the forward pass and of each gradient bucket on an emulated device.

    The times are in virtual seconds.
    """

    forward_s: float
    buckets_s: tuple[float, ...]  # when the gradient of each bucket is ready, the last layers' first


class ComputeSpeedPacer(ABC):
    """Base class that runs a worker's compute at the speed of the host or of an emulated device."""

    @abstractmethod
    async def run_paced(
        self, step_number: int, sample_count: int, function: Callable[[], Result]
    ) -> TimedComputeResult[Result]:
        """Run `function`, which computes the `sample_count` samples of one step, at the speed of the worker."""

    @abstractmethod
    async def run_paced_in_buckets(
        self,
        step_number: int,
        sample_count: int,
        function: Callable[[ReportBucket], Result],
        backward_shares: Sequence[float],
        report_bucket: ReportBucket,
        end_of_forward_s: Callable[[float], float] | None = None,
    ) -> TimedComputeResult[Result]:
        """Run `function` as `run_paced` does, and call `report_bucket` when the gradient of a bucket is ready.

        Args:
            step_number: number of the step.
            sample_count: samples of the step.
            function: computes the step; it calls its argument after each bucket, in the thread in which it runs.
            backward_shares: share of the backward pass' operations per bucket, in the order of the backward pass.
            report_bucket: called in the thread of the event loop, once per bucket.
            end_of_forward_s: returns the end of a forward pass that began before the step, given its duration in
                seconds; None: the pass begins with the step. Only emulated devices begin early.
        """

    @abstractmethod
    async def premeasure_compute_time(self, function: Callable[[], Result]) -> None:
        """Run the compute function of one step once before training, to measure its duration."""


@dataclass(frozen=True)
class HostSpeedPacer(ComputeSpeedPacer):
    """Pacer that runs a worker's compute at the speed of this host.

    Declared slowdowns stretch the measured time.
    """

    clock: Clock
    slowdowns: WorkerSlowdowns = field(default_factory=WorkerSlowdowns)

    async def run_paced(
        self,
        step_number: int,  # noqa: ARG002 - the speed of the host does not depend on it
        sample_count: int,  # noqa: ARG002
        function: Callable[[], Result],
    ) -> TimedComputeResult[Result]:
        start_s = self.clock.now()
        result = await self.clock.run_compute_function(function)
        await self.clock.sleep_until(self.slowdowns.end_of_compute_s(start_s, self.clock.now() - start_s))
        return TimedComputeResult(result)

    async def run_paced_in_buckets(
        self,
        step_number: int,
        sample_count: int,
        function: Callable[[ReportBucket], Result],
        backward_shares: Sequence[float],  # noqa: ARG002 - buckets are ready when the host has computed them
        report_bucket: ReportBucket,
        end_of_forward_s: Callable[[float], float] | None = None,  # noqa: ARG002 - the host has no parameters before
    ) -> TimedComputeResult[Result]:
        """Run `function`, and call `report_bucket` as soon as the host has computed a bucket.

        Slowdowns delay the end of the compute, not its buckets.
        """
        report_from_thread = partial(asyncio.get_running_loop().call_soon_threadsafe, report_bucket)
        return await self.run_paced(step_number, sample_count, lambda: function(report_from_thread))

    async def premeasure_compute_time(self, function: Callable[[], Result]) -> None:
        await self.clock.run_compute_function(function)


def _ignore_bucket() -> None:
    """Do nothing: buckets are reported at the deadlines of the emulated device."""


def unit_duration_factor(step: int) -> float:  # noqa: ARG001 - every step is like any other
    """Return 1.0, the factor on step times of a device of constant speed.

    The duration of a step does not vary on such a device.
    """
    return 1.0


@dataclass
class DeclaredSpeedPacer(ComputeSpeedPacer):
    """Pacer that runs a worker's compute at the speed that the scenario declares.

    The speed is exactly that of the declared device.
    """

    clock: Clock
    throughput: float  # samples per virtual second, in a step without variation and slowdowns
    slot: float  # time slot of this worker among the workers of the host, in [0, 1)
    duration_factor: Callable[[int], float] = unit_duration_factor  # of a step
    slowdowns: WorkerSlowdowns = field(default_factory=WorkerSlowdowns)
    _mean_compute_s: float = field(default=0.0)  # running mean
    _previous_late_s: float = field(default=0.0)  # by which the previous step ended after its deadline

    async def run_paced(
        self, step_number: int, sample_count: int, function: Callable[[], Result]
    ) -> TimedComputeResult[Result]:
        return await self.run_paced_in_buckets(
            step_number, sample_count, lambda _: function(), SINGLE_BUCKET, _ignore_bucket
        )

    async def run_paced_in_buckets(
        self,
        step_number: int,
        sample_count: int,
        function: Callable[[ReportBucket], Result],
        backward_shares: Sequence[float],
        report_bucket: ReportBucket,
        end_of_forward_s: Callable[[float], float] | None = None,
    ) -> TimedComputeResult[Result]:
        """Run `function`, and call `report_bucket` when the emulated device has computed a bucket.

        The real compute is complete before the first bucket is due. The lateness is that of the latest bucket.
        """
        # The exchange after the previous step, and so this step, began late by `_previous_late_s`: the device would be
        # ahead by that much. If the exchange waited for a worker that was later still, this is the part known here.
        max_catch_up_s = MAX_CATCH_UP_SHARE * sample_count / self.throughput
        now_s = self.clock.now()
        compute_s = self.duration_factor(step_number) * sample_count / self.throughput
        forward_s = compute_s * FORWARD_SHARE
        early_s = max(0.0, now_s + forward_s - end_of_forward_s(forward_s)) if end_of_forward_s else 0.0
        start_s = now_s - early_s - min(self._previous_late_s, max_catch_up_s)
        forward_end_s, buckets_s = self.predict_bucket_deadlines(start_s, compute_s, backward_shares)
        await self.clock.sleep_until(start_s + early_s + self._choose_start_delay_s(buckets_s[0] - start_s - early_s))
        result = await self._run_and_time(lambda: function(_ignore_bucket))
        late_s = 0.0
        for deadline_s in buckets_s:
            await self.clock.sleep_until(deadline_s)
            late_s = max(late_s, self.clock.now() - deadline_s)
            report_bucket()
        end_s = self.clock.now()
        self._previous_late_s = max(0.0, end_s - buckets_s[-1])
        return TimedComputeResult(result, late_s, forward_end_s - start_s, end_s - forward_end_s, early_s)

    async def premeasure_compute_time(self, function: Callable[[], Result]) -> None:
        await self._run_and_time(function)

    def predict_bucket_deadlines(
        self, step_start_s: float, compute_s: float, backward_shares: Sequence[float] = SINGLE_BUCKET
    ) -> EmulatedDeviceFinishTimes:
        """Return the times at which the emulated device finishes the parts of a step.

        The parts are the forward pass and each gradient bucket.

        Args:
            step_start_s: when the step starts.
            compute_s: duration of the compute without slowdowns.
            backward_shares: share of the backward pass' operations per bucket, in the order in which buckets become
                ready; the sum is 1.
        """
        backward_s = compute_s * (1 - FORWARD_SHARE)
        forward_s = compute_s - backward_s
        bucket_work_s = [*(forward_s + backward_s * share for share in accumulate(backward_shares[:-1])), compute_s]
        completion_time = self.slowdowns.end_of_compute_s
        buckets_s = tuple(completion_time(step_start_s, work_s) for work_s in bucket_work_s)
        return EmulatedDeviceFinishTimes(completion_time(step_start_s, forward_s), buckets_s)

    def _choose_start_delay_s(self, declared_compute_s: float) -> float:
        """Return the seconds from the start of a step to the time slot in which this worker computes."""
        guard_s = min(GUARD_WALL_S / self.clock.to_wall_s(1.0), MAX_GUARD_SHARE * declared_compute_s)
        return guard_s + self.slot * max(0.0, declared_compute_s - guard_s - 2 * self._mean_compute_s)

    async def _run_and_time(self, function: Callable[[], Result]) -> Result:
        """Run the compute function, and update the running mean of its duration."""
        start_s = self.clock.now()
        result = await self.clock.run_compute_function(function)
        compute_s = self.clock.now() - start_s
        self._mean_compute_s = COMPUTE_TIME_SMOOTHING * self._mean_compute_s + (1 - COMPUTE_TIME_SMOOTHING) * compute_s
        return result
