"""Elastic averaging SGD: every worker trains its own parameters, which a spring ties to a common centre.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with elastic averaging SGD", NeurIPS 2015. Every `period` local steps
a worker and the centre approach each other by α·(x - c): the sum x_i + c stays the same. With bsp all differences are
taken from the same centre, with asp from the current one. The centre is evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, PositiveInt

from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.parameter_server.synchronisers import Asp, Bsp
from services.parameter_server.update_rules import ElasticRule, pull
from services.runtime.run_log import StepTimes
from services.schema.arrays import HostArray, Vector
from services.schema.conflicts import Conflict
from services.strategies.base import Gradient, PhaseTraits, StepResult, StrategyContext, WorkerContext
from services.strategies.push_pull import PushPullWorker, ShardState
from services.strategies.served import ServedStrategy

BETA = 0.9  # α = β/n, the paper's choice


class Easgd(ServedStrategy):
    """Elastic averaging SGD; EAMSGD with the optimiser `momentum` and `nesterov`.

    `moving_rate` is α, the strength of the spring; 0 leaves workers independent and the centre unchanged. Samples count
    when they are exchanged; a worker that leaves exchanges the rest. Before the first exchange a worker knows nothing
    of the others and assumes that they have done as many steps. We differ: the exchange follows the local step instead
    of preceding it, and the worker's next step starts from its result.
    """

    kind: Literal["easgd"] = "easgd"
    period: PositiveInt = Field(10, description="local steps from one exchange to the next: τ")
    moving_rate: float | None = Field(None, ge=0, lt=1, description="α; 0.9 / workers when absent")

    def traits(self) -> PhaseTraits:
        return PhaseTraits(is_synchronous=False, exchange_period=self.period)

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        yield from super().conflicts(context)
        if self.period > context.steps:
            yield Conflict(("period",), f"period ({self.period}) is longer than the run ({context.steps} steps)")

    def contradiction(self, workers: int) -> str | None:
        if not isinstance(self.synchrony, Bsp | Asp):
            return f"easgd exchanges under bsp or asp, not {self.synchrony.kind}"
        if isinstance(self.synchrony, Bsp) and workers * self._alpha(workers) > 1:
            return f"{workers} workers move the centre too far; moving_rate may be 1/{workers} at most under bsp"
        return super().contradiction(workers)

    def _alpha(self, workers: int) -> float:
        """Return the part of their difference by which a worker and the centre approach each other."""
        return BETA / workers if self.moving_rate is None else self.moving_rate

    def _make_update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> ElasticRule:  # noqa: ARG002 - workers have it
        return ElasticRule(params, self._alpha(workers))

    def worker_algorithm(self, context: WorkerContext) -> "EasgdWorker":
        return EasgdWorker(context, self.traits().compressor, self.period, self._alpha(len(context.workers)))


@dataclass(frozen=True)
class EasgdState:
    """What a worker keeps between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    shard_states: tuple[ShardState, ...]  # by shard
    centre: Vector  # after this worker's last exchange
    unsent_samples: int = 0  # since then
    samples: int = 0  # of all workers, exchanged up to then
    pending_samples: int = 0  # of the other workers; until the first exchange as many as they do in as many steps


@dataclass(frozen=True)
class EasgdWorker(PushPullWorker):
    """Trains the worker's own parameters and exchanges with the centre every `period` steps."""

    period: int
    moving_rate: float  # α

    def init(self, params: Vector) -> EasgdState:
        return EasgdState(self.context.optimiser.init(params), self.initial_shard_states(), params)

    async def step(
        self, step: int, params: Vector, gradient: Gradient, state: EasgdState, times: StepTimes
    ) -> StepResult:
        with times.measure("update"):
            params, optimiser_state = self.context.optimiser.step(params, gradient.mean, state.optimiser_state)
        others = self.context.batch_size(step) - gradient.samples
        local = replace(
            state,
            optimiser_state=optimiser_state,
            unsent_samples=state.unsent_samples + gradient.samples,
            pending_samples=state.pending_samples if state.samples else state.pending_samples + others,
        )
        if (step + 1) % self.period == 0:
            return await self._exchange(step // self.period, params, local, times)
        samples = local.samples + local.unsent_samples
        return StepResult(params, local, None, samples, local.pending_samples, local.centre)

    async def _exchange(self, number: int, params: Vector, state: EasgdState, times: StepTimes) -> StepResult:
        """Move the worker's parameters and the centre towards each other."""
        replies = await self.push_pull(number, params, state.unsent_samples, state.shard_states, times)
        with times.measure("update"):
            centre = self.context.device.to_device(replies.vector)
            moved = pull(self.moving_rate, params, centre)
            state = EasgdState(
                state.optimiser_state,
                replies.shard_states,
                centre + moved,
                samples=replies.samples,
                pending_samples=replies.pending_samples,
            )
        staleness, samples, pending_samples = replies.staleness, replies.samples, replies.pending_samples
        return StepResult(params - moved, state, staleness, samples, pending_samples, state.centre)

    async def finish(self, step: int, result: StepResult, times: StepTimes) -> None:
        if step % self.period:  # even without samples since then: servers number the pushes
            await self._exchange(step // self.period, result.params, result.state, times)

    async def leave(self, step: int) -> None:
        await super().leave(-(-step // self.period))
