"""Parameter server: workers push gradients to servers that own the parameters, and receive updated parameters.

M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014. Every server owns one
contiguous range of the flat vector and its part of the optimiser's state.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from services.compressors import AnyCompressor, Identity
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.parameter_server.compensation import AnyCompensation, Uncompensated
from services.parameter_server.placement import Dedicated
from services.parameter_server.staleness import AnyStaleness, Unweighted
from services.parameter_server.update_rules import GradientRule
from services.runtime.run_log import StepTimes
from services.schema.arrays import HostArray, Vector
from services.schema.conflicts import Conflict
from services.strategies.base import Gradient, PhaseTraits, StepResult, StrategyContext, WorkerContext
from services.strategies.push_pull import PushPullWorker, ShardState
from services.strategies.served import ServedStrategy


class ParameterServer(ServedStrategy):
    """Push, then pull, once per step. With `bsp` a server replies when all have pushed, with `asp` at once."""

    kind: Literal["parameter_server"] = "parameter_server"
    staleness: AnyStaleness = Field(default=Unweighted(), description="weight of a gradient by its staleness")
    compensation: AnyCompensation = Field(
        default=Uncompensated(), description="how a gradient is corrected for updates since its parameters were read"
    )
    compress: AnyCompressor = Field(
        default=Identity(), description="number format of pushes; replies are not compressed"
    )
    rate: Literal["per_sample", "as_given"] = Field(
        default="per_sample",
        description="per_sample: an update from one worker's gradient uses 1/n of the learning rate, so that a sample "
        "counts as much as in synchronous training; as_given: the whole rate",
    )

    @property
    def _gradient_weight(self) -> AnyStaleness:
        return self.staleness

    def traits(self) -> PhaseTraits:
        return PhaseTraits(is_synchronous=self.synchrony.lockstep, workers_update=False, compressor=self.compress)

    def contradiction(self, workers: int) -> str | None:
        if self._scales_rate(workers) and self.staleness.divides_by_workers:
            return (
                f"staleness {self.staleness.kind} divides the rate by {workers} on average, and rate per_sample does "
                "so again; write rate: as_given, or staleness none, exponential or cut_off"
            )
        return super().contradiction(workers)

    def _scales_rate(self, workers: int) -> bool:
        """Return whether an update may use a part of the rate because it has fewer gradients than workers."""
        algorithm = self.server_algorithm()
        fewest = 1 if self.synchrony.comes_apart else algorithm.gradients_per_update(workers)
        return self.rate == "per_sample" and fewest < algorithm.computing_workers(workers)

    def conflicts_after_switch(self, context: StrategyContext) -> Iterator[Conflict]:
        """Yield the conflicts of the second phase of a switch, which decides about the rate and calls in servers."""
        if reason := self._contradiction_after_switch(context.workers):
            yield Conflict((), reason)
        yield from self.shard_conflicts(context)

    def _contradiction_after_switch(self, workers: int) -> str | None:
        reason = self.placement.refusal_after(workers, self.servers) or self.several_servers_contradiction(workers)
        dedicated = self.model_copy(update={"rate": "as_given", "placement": Dedicated()})
        return reason or dedicated.contradiction(self.placement.computing(workers))

    def optimiser(self, declared: AnyOptimiser, workers: int) -> AnyOptimiser:
        if self.rate == "as_given":
            return declared
        algorithm = self.server_algorithm()
        share = algorithm.gradients_per_update(workers) / algorithm.computing_workers(workers)
        return declared.model_copy(update={"rate": declared.rate * share})

    def _make_update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> GradientRule:
        """An update of fewer gradients than planned, as when workers have left, uses a smaller part of the rate.

        Where stragglers decide how many gradients an update has, `as_given` gives each update the whole rate.
        """
        whole = None
        if not (self.synchrony.watch and self.rate == "as_given"):
            whole = self.server_algorithm().gradients_per_update(workers)
        return GradientRule(params, optimiser, optimiser.init(params), self.staleness, self.compensation, whole)

    def worker_algorithm(self, context: WorkerContext) -> "ParameterServerWorker":
        return ParameterServerWorker(context, self.compress)


class ParameterServerWorker(PushPullWorker):
    """Pushes its gradient and continues with the parameters of the replies."""

    def init(self, params: Vector) -> tuple[ShardState, ...]:  # noqa: ARG002 - version 0 is the same everywhere
        return self.initial_shard_states()

    def resume(self, params: Vector, version: int, optimiser_state: OptimiserState) -> tuple[ShardState, ...]:  # noqa: ARG002
        """The compressor's state of another phase is dropped: its residuals belonged to other ranges."""
        return tuple(state._replace(version=version) for state in self.init(params))

    async def step(
        self,
        step: int,
        params: Vector,
        gradient: Gradient,
        state: tuple[ShardState, ...],
        times: StepTimes,
    ) -> StepResult:
        replies = await self.push_pull(step, gradient.mean, gradient.samples, state, times)
        params = self.context.device.to_device(replies.vector)
        return StepResult(params, replies.shard_states, replies.staleness, replies.samples, replies.pending_samples)
