"""Elastic averaging SGD (EASGD): each worker is coupled to a centre on the servers.

Each worker trains its own parameters, and the centre is common to all workers. S. Zhang, A. Choromanska, Y. LeCun,
"Deep learning with elastic averaging SGD", NeurIPS 2015. Every `period` local steps a worker with parameters x and the
centre c move towards each other by α·(x - c); the sum of all x and c stays the same. With bsp all workers take the
difference from the same centre, with asp each one from the current centre. Evaluations use the parameters of the
centre.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import floor
from typing import Literal

from pydantic import Field, PositiveInt

from services.learning.optimisers import OptimiserState
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.synchronisers import Asp, Bsp
from services.parameter_server.update_rules import ElasticAveragingRule, elastic_averaging_move
from services.runtime.run_log import StepTimer
from services.schema.arrays import HostArray, Vector
from services.schema.conflicts import KeyConflict
from services.strategies.base import ExchangePattern, Gradient, ScenarioSizes, StepResult, WorkerContext
from services.strategies.base.training_quality import TrainingQuality, unguarded_quality
from services.strategies.local_training.periodic_exchange import find_period_conflicts
from services.strategies.server_based.base import ServerBasedStrategy
from services.strategies.server_based.push_pull import PushPullWorker, PushState

DEFAULT_BETA = 0.9  # β of the default α = β/n for n workers, as in the paper


class Easgd(ServerBasedStrategy):
    """Elastic averaging SGD (EASGD, Zhang et al., 2015).

    Optimiser `momentum` with `nesterov` gives their EAMSGD. `moving_rate` is α, the strength of the coupling; with 0
    workers are independent and the centre never changes. Samples count when they are exchanged; a worker that leaves
    exchanges the rest. Schedules of the learning rate count the samples in the centre at the worker's last exchange,
    and the global batches of the worker's steps since then. Before its first exchange a worker assumes that the other
    workers have done as many steps as itself. We differ: the exchange follows the local step instead of preceding it,
    and the worker's next step starts from the result of the exchange.
    """

    kind: Literal["easgd"] = "easgd"
    period: PositiveInt = Field(10, description="local steps from one exchange to the next (τ)")
    moving_rate: float | None = Field(
        None, ge=0, lt=1, description="strength α of the coupling between worker and centre; default: 0.9 / workers"
    )

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(is_synchronous=False, has_equal_replicas=False, exchange_period=self.period)

    def describe_quality(self) -> TrainingQuality:
        reason = "every worker has its own parameters, and their distance from the centre has no known limit"
        return unguarded_quality(self.kind, reason).after_local_steps(self.period)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from super().find_scenario_conflicts(scenario_sizes)
        yield from find_period_conflicts(self.period, scenario_sizes)

    def _explain_key_conflict(self, worker_count: int) -> str | None:
        if not isinstance(self.synchrony, Bsp | Asp):
            return f"easgd supports synchrony bsp or asp, not {self.synchrony.kind}; use one of these"
        moving_rate = self._moving_rate_or_default(worker_count)
        if isinstance(self.synchrony, Bsp) and worker_count * moving_rate > 1:
            return (
                f"moving_rate {moving_rate:g} is too large; with synchrony bsp and {worker_count} workers it may be at "
                f"most {floor(1e6 / worker_count) / 1e6:g}"
            )
        return super()._explain_key_conflict(worker_count)

    def _moving_rate_or_default(self, worker_count: int) -> float:
        """Return the moving rate α of elastic averaging.

        The moving rate is as declared, or by default β/n for n workers, with β = 0.9.
        """
        return DEFAULT_BETA / worker_count if self.moving_rate is None else self.moving_rate

    def _make_update_rule(
        self,
        updater: ParameterUpdater,  # noqa: ARG002 - workers run the optimiser
        params: HostArray,
        worker_count: int,
    ) -> ElasticAveragingRule:
        return ElasticAveragingRule(params, self._moving_rate_or_default(worker_count))

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "EasgdWorker":
        moving_rate = self._moving_rate_or_default(len(worker_context.workers))
        return EasgdWorker(worker_context, self._push_compressor, self._reply_compressor, self.period, moving_rate)


@dataclass(frozen=True)
class EasgdWorkerState:
    """State of an EASGD worker between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    shard_states: tuple[PushState, ...]  # by shard
    centre: Vector  # after this worker's last exchange
    unsent_samples: int = 0  # of this worker, since its last exchange
    batch_samples: int = 0  # in the global batches of this worker's steps since its last exchange
    samples: int = 0  # of all workers, exchanged up to this worker's last exchange
    pending_samples: int = 0  # of the other workers, not exchanged; until the first exchange an assumption


@dataclass(frozen=True)
class EasgdWorker(PushPullWorker):
    """Worker algorithm of EASGD: trains the worker's own parameters.

    The worker exchanges its parameters with servers every `period` steps.
    """

    period: int
    moving_rate: float  # α

    def initial_state(self, params: Vector) -> EasgdWorkerState:
        return EasgdWorkerState(self.context.updater.init_state(params), self.make_initial_push_states(), params)

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: EasgdWorkerState, step_timer: StepTimer
    ) -> StepResult:
        with step_timer.measure_phase("update"):
            samples_before = worker_state.samples + worker_state.batch_samples
            params, optimiser_state = self.context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, samples_before
            )
        batch_samples = self.context.batch_size(step)
        local = replace(
            worker_state,
            optimiser_state=optimiser_state,
            unsent_samples=worker_state.unsent_samples + gradient.samples,
            batch_samples=worker_state.batch_samples + batch_samples,
            pending_samples=worker_state.pending_samples
            if worker_state.samples
            else worker_state.pending_samples + batch_samples - gradient.samples,
        )
        if (step + 1) % self.period == 0:
            return await self._exchange_with_centre(step // self.period, params, local, step_timer)
        samples = local.samples + local.unsent_samples
        return StepResult(params, local, None, samples, local.pending_samples, local.centre)

    async def _exchange_with_centre(
        self, push_number: int, params: Vector, worker_state: EasgdWorkerState, step_timer: StepTimer
    ) -> StepResult:
        """Push this worker's parameters to the servers, and move these parameters towards the centre.

        The centre (the servers' parameters) moves towards the worker's parameters by the same amount.
        """
        replies = await self.exchange_with_shards(
            push_number, params, worker_state.unsent_samples, worker_state.shard_states, step_timer, params
        )
        with step_timer.measure_phase("update"):
            centre = self.context.device.to_device(replies.vector)
            moved = elastic_averaging_move(self.moving_rate, params, centre)
            worker_state = EasgdWorkerState(
                worker_state.optimiser_state,
                replies.shard_states,
                centre + moved,
                samples=replies.samples,
                pending_samples=replies.pending_samples,
            )
        staleness, samples, pending_samples = replies.staleness, replies.samples, replies.pending_samples
        return StepResult(params - moved, worker_state, staleness, samples, pending_samples, worker_state.centre)

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:
        if leave_step % self.period:  # even without samples since the last exchange: servers expect every push number
            step_result = await self._exchange_with_centre(
                leave_step // self.period, step_result.params, step_result.state, step_timer
            )
        await self.announce_last_push(-(-leave_step // self.period))
        return step_result.params
