"""Worker algorithm of DiLoCo: local steps, exchanges of fragments, and the merge of their results."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import NamedTuple

from services.compressors import CompressorState
from services.learning.layout import ArrayRange, VectorRange, equal_vector_ranges
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.runtime.clock import Clock
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.strategies.base import Gradient, StepResult, WorkerAlgorithm
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule
from services.strategies.local_training.periodic_exchange import (
    NO_SAMPLES,
    SampleCounts,
    SummedVectors,
    is_last_step,
    sum_over_workers,
)
from services.strategies.vector_sums import VectorSum


class RunningExchange(NamedTuple):
    """Exchange of one fragment that has started and whose result is not merged yet."""

    # Returns the outer gradient of the fragment, and the averaged vectors of the optimiser's state.
    task: "asyncio.Task[SummedVectors]"
    fragment_number: int
    start_step: int  # step whose parameters are exchanged


class FragmentState(NamedTuple):
    """State that a worker keeps for one fragment (range of the parameter vector)."""

    outer_state: OptimiserState  # of the outer optimiser
    compressor_state: CompressorState
    samples: SampleCounts = NO_SAMPLES  # since the start of the fragment's last exchange


@dataclass(frozen=True)
class DiLoCoState:
    """State of a DiLoCo worker between steps."""

    optimiser_state: OptimiserState  # of the worker's own optimiser
    common_params: Vector  # the same bits on all workers; only outer updates change them
    fragments: tuple[FragmentState, ...]
    exchange_number: int = 0  # of the next exchange
    exchanges: int = 0  # that have started; the next one is that of fragment `exchanges` modulo their number
    local_steps: int = 0  # since the start of the last exchange
    running: RunningExchange | None = None


@dataclass(frozen=True)
class DiLoCoWorker(WorkerAlgorithm):
    """Worker algorithm of DiLoCo.

    At most one exchange runs at a time: the result of an exchange is merged before the next one starts.
    """

    vector_sum: VectorSum
    outer_optimiser: AnyOptimiser
    exchange_schedule: ExchangeSchedule  # every fragment is exchanged once per period
    overlap_steps: float  # at most the steps between two exchanges; a fraction: the end of a step's compute
    merge_weight: float  # of the common parameters; the worker's own have the rest
    averages_optimiser_state: bool

    def initial_state(self, params: Vector) -> DiLoCoState:
        return self.state_after_switch(params, 0, self.context.updater.init_state(params))

    def state_after_switch(self, params: Vector, update_count: int, optimiser_state: OptimiserState) -> DiLoCoState:
        fragments = self._split_into_fragments(params)
        states = tuple(self._initial_fragment_state(part.view(params)) for part in fragments)
        return DiLoCoState(optimiser_state, params, states, exchange_number=update_count)

    def _initial_fragment_state(self, params: Vector) -> FragmentState:
        compressor_state = self.vector_sum.init_state(params, self.context.compressor_seed)
        return FragmentState(self.outer_optimiser.init_state(params), compressor_state)

    def _split_into_fragments(self, vector: Vector) -> tuple[VectorRange, ...]:
        return equal_vector_ranges(len(vector), self.exchange_schedule.exchanges)

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: DiLoCoState, step_timer: StepTimer
    ) -> StepResult:
        with step_timer.measure_phase("update"):
            params, optimiser_state = self.context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, gradient.samples_before
            )
            state = self._count_step(step, gradient, replace(worker_state, optimiser_state=optimiser_state))
        is_last = is_last_step(self.context, step, gradient)
        if state.running and (is_last or step - state.running.start_step >= self.overlap_steps):
            params, state = await self._merge_running_exchange(params, state, state.running, step_timer)
        if is_last or state.local_steps == self.exchange_schedule.steps_before_exchange(state.exchanges):
            delay_s = 0.0 if is_last else self._start_delay_s(step_timer)
            with step_timer.measure_phase("exchange"):
                state = self._start_exchange(step, params, state, step_timer.clock, delay_s)
            if state.running and (is_last or not self.overlap_steps):
                params, state = await self._merge_running_exchange(params, state, state.running, step_timer)
        return StepResult(params, state, eval_params=state.common_params)

    def _count_step(self, step: int, gradient: Gradient, state: DiLoCoState) -> DiLoCoState:
        """Return the state with one more local step, and its samples added to the counts of all fragments."""
        batch = self.context.batch_size(step)
        fragments = (part._replace(samples=part.samples.add_step(gradient.samples, batch)) for part in state.fragments)
        return replace(state, fragments=tuple(fragments), local_steps=state.local_steps + 1)

    def _start_delay_s(self, step_timer: StepTimer) -> float:
        """Return the seconds of the next step's compute that do not run beside an exchange.

        The next step is assumed to compute as long as this one.
        """
        return (ceil(self.overlap_steps) - self.overlap_steps) * step_timer.seconds.get("compute", 0.0)

    def _start_exchange(
        self, step: int, params: Vector, state: DiLoCoState, clock: Clock, delay_s: float
    ) -> DiLoCoState:
        """Start the exchange of the next fragment as a task of its own, which runs while the worker computes.

        The messages are sent after `delay_s` seconds.
        """
        number = state.exchanges % self.exchange_schedule.exchanges
        part, fragment = self._split_into_fragments(params)[number], state.fragments[number]
        slots = state.optimiser_state.slots if self.averages_optimiser_state else ()
        changes = [part.view(state.common_params) - part.view(params), *(part.view(slot) for slot in slots)]
        exchange = partial(
            sum_over_workers,
            self.context,
            self.vector_sum,
            state.exchange_number,
            changes,
            fragment.samples.own_share,
            fragment.compressor_state,
        )
        task = asyncio.create_task(_run_after(clock, delay_s, exchange))
        task.add_done_callback(_mark_error_as_seen)
        running = RunningExchange(task, number, step)
        fragments = list(state.fragments)
        fragments[number] = fragment._replace(samples=NO_SAMPLES)
        return replace(
            state,
            fragments=tuple(fragments),
            exchange_number=state.exchange_number + 1,
            exchanges=state.exchanges + 1,
            local_steps=0,
            running=running,
        )

    async def _merge_running_exchange(
        self, params: Vector, state: DiLoCoState, running: RunningExchange, step_timer: StepTimer
    ) -> tuple[Vector, DiLoCoState]:
        """Wait for an exchange, make the outer update with its result, and merge the update into the parameters."""
        with step_timer.measure_phase("exchange"):
            (outer_gradient, *slots), compressor_state = await running.task
        with step_timer.measure_phase("update"):
            part = self._split_into_fragments(params)[running.fragment_number]
            fragment = state.fragments[running.fragment_number]
            common, outer_state = self.outer_optimiser.update_params(
                part.view(state.common_params), outer_gradient, fragment.outer_state, self._arrays_of_whole_vector
            )
            fragments = list(state.fragments)
            fragments[running.fragment_number] = fragment._replace(
                outer_state=outer_state, compressor_state=compressor_state
            )
            state = replace(
                state,
                optimiser_state=_replace_slots(state.optimiser_state, part, slots),
                common_params=_replace_range(state.common_params, part, common),
                fragments=tuple(fragments),
                running=None,
            )
            return _replace_range(params, part, self._merge(part.view(params), common)), state

    @property
    def _arrays_of_whole_vector(self) -> Sequence[ArrayRange]:
        return self.context.updater.arrays if self.exchange_schedule.exchanges == 1 else ()

    def _merge(self, own: Vector, common: Vector) -> Vector:
        """Return the worker's parameters after it has merged the common parameters into its own."""
        if self.merge_weight == 1:
            return common
        return own + own.dtype.type(self.merge_weight) * (common - own)

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:  # noqa: ARG002
        """Wait for an exchange that still runs where training stops before the end of its budget.

        All workers stop after the same step, and wait for the same exchange. Its result is not used.
        """
        state: DiLoCoState = step_result.state
        if state.running:
            await state.running.task
        return step_result.params


async def _run_after(clock: Clock, delay_s: float, exchange: Callable[[], Awaitable[SummedVectors]]) -> SummedVectors:
    """Run an exchange after a delay in seconds, and return its result."""
    if delay_s:
        await clock.sleep_until(clock.now() + delay_s)
    return await exchange()


def _mark_error_as_seen(task: asyncio.Task[SummedVectors]) -> None:
    """Keep asyncio from printing the error of an exchange for which no task waits, because another error came first."""
    if not task.cancelled():
        task.exception()


def _replace_slots(state: OptimiserState, part: VectorRange, mean_slots: Sequence[Vector]) -> OptimiserState:
    """Return the optimiser's state with averaged entries in a range of its vectors; unchanged without averages."""
    if not mean_slots:
        return state
    slots = (_replace_range(slot, part, mean) for slot, mean in zip(state.slots, mean_slots, strict=True))
    return replace(state, slots=tuple(slots))


def _replace_range(vector: Vector, part: VectorRange, values: Vector) -> Vector:
    """Return the vector with other values in a range; `vector` itself is unchanged."""
    if part.size == len(vector):
        return values
    copy = vector.copy()
    copy[part.start : part.stop] = values
    return copy
