"""Parameter server strategy: workers push gradients to the servers and receive updated parameters.

M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014. Every server owns one shard:
a contiguous range of the parameter vector, and the optimiser's state for that range.
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field

from services.collectives import NetworkAndModelSizes
from services.compressors import AnyCompressor, Compressor, IdentityCompressor
from services.learning.batch_balance import AnyBatchBalance, UniformBalance
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.compensation import AnyDelayCompensation, NoCompensation
from services.parameter_server.placement import DedicatedPlacement
from services.parameter_server.staleness import AnyStalenessWeighting, UniformWeighting
from services.parameter_server.update_rules import GradientUpdateRule
from services.runtime.run_log import StepTimer
from services.schema.arrays import HostArray, Vector
from services.schema.conflicts import KeyConflict
from services.strategies.balance_conflicts import BALANCE_DESCRIPTION, find_balance_conflicts
from services.strategies.base import (
    IDENTITY_COMPRESSOR,
    ExchangePattern,
    Gradient,
    ScenarioSizes,
    StepResult,
    WorkerContext,
)
from services.strategies.base.training_quality import (
    ASYNCHRONOUS_REASON,
    TrainingQuality,
    quality_of_sums,
    unguarded_quality,
    worst_quality,
)
from services.strategies.compressor_fit import (
    find_array_conflicts,
    find_shared_scale_conflicts,
    fit_compressors,
)
from services.strategies.cost_model import CostModel
from services.strategies.server_based.base import ServerBasedStrategy
from services.strategies.server_based.push_pull import PushPullWorker, PushState


class ParameterServer(ServerBasedStrategy):
    """Parameter server: each worker pushes its gradient and pulls parameters once per step.

    With synchrony `bsp` a server replies when all workers have pushed, with `asp` at once.
    """

    kind: Literal["parameter_server"] = "parameter_server"
    staleness: AnyStalenessWeighting = Field(UniformWeighting(), description="weight of a gradient by its staleness")
    compensation: AnyDelayCompensation = Field(
        default=NoCompensation(), description="correction of a gradient for the updates since its parameters were read"
    )
    compress: AnyCompressor = Field(IdentityCompressor(), description="number format of pushes")
    compress_replies: AnyCompressor = Field(
        default=IdentityCompressor(),
        description="number format of replies; other formats than identity send the difference to the parameters that "
        "the worker has, so that later replies contain what this one leaves out",
    )
    rate: Literal["per_sample", "as_given"] = Field(
        default="per_sample",
        description="learning rate of an update. per_sample: an update from one of n workers uses 1/n of the rate, so "
        "that a sample counts as much as in synchronous training; as_given: every update uses the whole rate",
    )
    balance: AnyBatchBalance = Field(
        UniformBalance(), description=f"{BALANCE_DESCRIPTION}; only uniform unless synchrony is bsp"
    )

    @property
    def _staleness_weighting(self) -> AnyStalenessWeighting:
        return self.staleness

    @property
    def _push_compressor(self) -> Compressor:
        return self.compress

    @property
    def _reply_compressor(self) -> Compressor:
        return self.compress_replies

    def describe_worker_exchange(self) -> ExchangePattern:
        is_synchronous = self.synchrony.describe_worker_sync().is_synchronous
        return ExchangePattern(
            is_synchronous,
            has_equal_replicas=is_synchronous,
            workers_run_optimiser=False,
            compressor=self.compress,
            balance=self.balance,
        )

    def describe_quality(self) -> TrainingQuality:
        if self.synchrony.kind != "bsp":
            name, remedy = f"synchrony {self.synchrony.kind}", "write synchrony: {kind: bsp}"
            return unguarded_quality(name, ASYNCHRONOUS_REASON, remedy)
        if self.compress_replies.sum_quality == "unguarded":
            reason, _ = self.compress_replies.explain_unguarded_sums()
            return unguarded_quality(f"compress_replies {self.compress_replies.kind}", reason, "use fp16 or int8")
        return worst_quality(quality_of_sums(self.compress), quality_of_sums(self.compress_replies))

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from super().find_scenario_conflicts(scenario_sizes)
        reason = ""
        if not self.synchrony.describe_worker_sync().is_synchronous:
            reason = (
                f"unequal shares make the workers of a step finish together, but with synchrony {self.synchrony.kind} "
                "workers do not wait for each other in every step; use synchrony bsp, or balance uniform"
            )
        yield from find_balance_conflicts(self.balance, scenario_sizes, unsupported_reason=reason)
        yield from self._find_reply_conflicts()
        yield from find_array_conflicts(self._compressors, scenario_sizes)
        yield from find_shared_scale_conflicts(self._compressors)

    def resolve_auto_collective(
        self,
        network_and_model_sizes: NetworkAndModelSizes,
        cost_model: CostModel,  # noqa: ARG002 - there is nothing to choose
    ) -> tuple[Self, dict[str, float]]:
        fitted = fit_compressors(self._compressors, network_and_model_sizes.array_shapes)
        return self.model_copy(update=fitted), {}

    @property
    def _compressors(self) -> dict[str, Compressor]:
        return {"compress": self.compress, "compress_replies": self.compress_replies}

    def _explain_key_conflict(self, worker_count: int) -> str | None:
        if self._scales_lr_by_gradients(worker_count) and self.staleness.divides_lr_by_worker_count:
            return (
                f"both staleness {self.staleness.kind} and rate: per_sample divide the learning rate by "
                f"{worker_count}; write rate: as_given, or staleness none, exponential or cut_off"
            )
        return super()._explain_key_conflict(worker_count)

    def _scales_lr_by_gradients(self, worker_count: int) -> bool:
        """Return whether updates from fewer gradients than workers use a reduced learning rate."""
        algorithm, properties = self.server_algorithm(), self.synchrony.describe_worker_sync()
        fewest = 1 if properties.is_asynchronous_with_stragglers else algorithm.gradients_per_update(worker_count)
        return self.rate == "per_sample" and fewest < algorithm.count_gradient_workers(worker_count)

    def _find_reply_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict if what a reply leaves out would be sent twice."""
        if self.compress_replies.keeps_residual:
            why = (
                f"compressor {self.compress_replies.kind} adds a residual, but the difference to the parameters of the "
                "worker already contains what earlier replies have left out"
            )
            yield KeyConflict(("compress_replies",), f"{why}; use a compressor without a residual, such as top_k")

    def find_pre_switch_conflicts(self) -> Iterator[KeyConflict]:
        if self.describe_worker_exchange().has_equal_replicas and self.compress_replies != IDENTITY_COMPRESSOR:
            why = (
                "with compressed replies, workers and servers have different parameters, which a switch does not allow"
            )
            yield KeyConflict(("compress_replies",), f"{why} after synchronous training; remove compress_replies")

    def find_post_switch_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield the conflicts that forbid this strategy as the second phase of a strategy switch.

        The switch determines the learning rate and may add servers, so other conditions hold than for a whole run.
        """
        if reason := self._explain_unusable_after_switch(scenario_sizes.workers):
            yield KeyConflict((), reason)
        yield from self._find_shard_conflicts(scenario_sizes)
        yield from self._find_reply_conflicts()
        yield from find_array_conflicts(self._compressors, scenario_sizes)
        yield from find_shared_scale_conflicts(self._compressors)

    def _explain_unusable_after_switch(self, worker_count: int) -> str | None:
        if reason := self.placement.explain_switch_conflict(worker_count, self.servers):
            return reason
        if reason := self._explain_one_server_limit(worker_count):
            return reason
        dedicated = self.model_copy(update={"rate": "as_given", "placement": DedicatedPlacement()})
        gradient_workers = self.placement.count_gradient_workers(worker_count)
        return dedicated._explain_key_conflict(gradient_workers)  # noqa: SLF001 - a copy of this strategy

    def scale_learning_rate(self, declared_optimiser: AnyOptimiser, worker_count: int) -> AnyOptimiser:
        if self.rate == "as_given":
            return declared_optimiser
        algorithm = self.server_algorithm()
        share = algorithm.gradients_per_update(worker_count) / algorithm.count_gradient_workers(worker_count)
        return declared_optimiser.model_copy(update={"rate": declared_optimiser.rate * share})

    def _make_update_rule(self, updater: ParameterUpdater, params: HostArray, worker_count: int) -> GradientUpdateRule:
        """Return the update rule of a server: an optimiser step with the mean gradient.

        An update from fewer gradients than planned, for example after workers have left, uses a smaller part of the
        rate. If stragglers determine how many gradients an update has, `as_given` gives each update the whole rate.
        """
        planned_gradients = None
        if not (self.synchrony.describe_worker_sync().straggler_criterion and self.rate == "as_given"):
            planned_gradients = self.server_algorithm().gradients_per_update(worker_count)
        state = updater.init_state(params)
        return GradientUpdateRule(params, updater, state, self.staleness, self.compensation, planned_gradients)

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "ParameterServerWorker":
        return ParameterServerWorker(worker_context, self.compress, self.compress_replies)


class ParameterServerWorker(PushPullWorker):
    """Worker algorithm of the parameter server strategy.

    The worker pushes its gradient and continues with the parameters in the reply.
    """

    @property
    def sends_gradients_from_host(self) -> bool:
        return self.compressor == IDENTITY_COMPRESSOR

    def initial_state(self, params: Vector) -> tuple[PushState, ...]:  # noqa: ARG002 - version 0 is the same everywhere
        return self.make_initial_push_states()

    def state_after_switch(
        self,
        params: Vector,
        update_count: int,
        optimiser_state: OptimiserState,  # noqa: ARG002
    ) -> tuple[PushState, ...]:
        """Return the worker's state for each shard after a strategy switch.

        The compressors start from new states. The residuals of the other phase's compressor belonged to other ranges of
        the vector.
        """
        return tuple(state._replace(version=update_count) for state in self.initial_state(params))

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: tuple[PushState, ...], step_timer: StepTimer
    ) -> StepResult:
        pushed = gradient.to_host(self.context.device) if self.sends_gradients_from_host else gradient.mean
        replies = await self.exchange_with_shards(step, pushed, gradient.samples, worker_state, step_timer, params)
        params = self.context.device.to_device(replies.vector)
        return StepResult(params, replies.shard_states, replies.staleness, replies.samples, replies.pending_samples)
