"""Parameter server: workers push gradients to the servers that hold the parameters and get fresh parameters back.

M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014. Every server holds one
contiguous range of the flat vector and its part of the optimiser's state.
"""

from typing import Literal

from pydantic import Field

from services.compressors import AnyCompressor, Compressor, Identity
from services.learning.optimisers import AnyOptimiser
from services.learning.optimisers import State as Kept
from services.parameter_server.compensation import AnyCompensation, Uncompensated
from services.parameter_server.staleness import AnyStaleness, Unweighted
from services.parameter_server.update_rules import GradientRule
from services.runtime.run_log import Phases
from services.schema.arrays import HostArray, Vector
from services.strategies.base import Gradient, Outcome, Peer
from services.strategies.servers import Held, ServedStrategy


class ParameterServer(ServedStrategy):
    """Push, then pull, once per step. Under `bsp` a server answers when all have pushed; under `asp` at once."""

    kind: Literal["parameter_server"] = "parameter_server"
    staleness: AnyStaleness = Field(default=Unweighted(), description="what an old gradient is worth")
    compensation: AnyCompensation = Field(
        default=Uncompensated(), description="how a gradient is corrected for what happened since its parameters"
    )
    compress: AnyCompressor = Field(
        default=Identity(), description="number format of pushes; answers are not compressed"
    )
    rate: Literal["per_sample", "as_given"] = Field(
        default="per_sample",
        description="per_sample: an update from one worker's gradient uses 1/n of the learning rate, so that a sample "
        "counts as much as in lockstep; as_given: the whole rate",
    )

    @property
    def synchronous(self) -> bool:
        return self.synchrony.lockstep

    @property
    def number_format(self) -> Compressor:
        return self.compress

    @property
    def gradients_worth(self) -> AnyStaleness:
        return self.staleness

    def refusal(self, workers: int) -> str | None:
        if self._divides(workers) and self.staleness.divides_by_workers:
            return (
                f"staleness {self.staleness.kind} divides the rate by {workers} on average, and rate per_sample does "
                "so again; write rate: as_given, or staleness none, exponential or cut_off"
            )
        return super().refusal(workers)

    def _divides(self, workers: int) -> bool:
        """Whether an update may use a part of the rate: it has one worker's gradient, or others than stragglers'."""
        computing = self.computing(workers)
        fewest = 1 if self.synchrony.comes_apart else self.gathers(workers)
        return self.rate == "per_sample" and fewest < computing

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        if self.rate == "as_given":
            return given
        share = self.gathers(workers) / self.computing(workers)
        return given.model_copy(update={"rate": given.rate * share})

    def update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> GradientRule:
        """Updates of fewer gradients than planned, as when workers have left, use as much less of the rate.

        Where stragglers decide how many an update has, `as_given` gives each of them the whole rate.
        """
        whole = None if self.synchrony.watch and self.rate == "as_given" else self.gathers(workers)
        return GradientRule(params, optimiser, optimiser.init(params), self.staleness, self.compensation, whole)

    def init(self, peer: Peer, params: Vector) -> tuple[Held, ...]:  # noqa: ARG002 - version 0 is the same everywhere
        return self.at_first(peer)

    def resume(self, peer: Peer, params: Vector, version: int, kept: Kept) -> tuple[Held, ...]:  # noqa: ARG002
        """What a compressor remembered under another strategy is gone: its residuals belonged to other ranges."""
        return tuple(held._replace(version=version) for held in self.init(peer, params))

    async def step(
        self,
        peer: Peer,
        step: int,
        params: Vector,  # noqa: ARG002 - fresh ones come from the servers
        gradient: Gradient,
        state: tuple[Held, ...],
        phases: Phases,
    ) -> Outcome:
        told = await self.exchange(peer, step, gradient.mean, gradient.samples, state, phases)
        fresh = peer.device.to_device(told.fresh)
        return Outcome(fresh, told.held, told.staleness, told.samples, told.underway)
