"""Elastic averaging: every worker trains parameters of its own and is tied to a common centre by a spring.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with elastic averaging SGD", NeurIPS 2015. Every `period` local steps
a worker and the centre approach each other by α·(x - c): x_i + c is kept. With bsp all differences are taken from the
same centre, with asp from the one that a worker finds. The centre is what is evaluated.
"""

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, PositiveInt

from services.learning.optimisers import AnyOptimiser
from services.learning.optimisers import State as Moments
from services.parameter_server.synchronisers import Asp, Bsp
from services.parameter_server.update_rules import ElasticRule, pull
from services.runtime.run_log import Phases
from services.schema.arrays import HostArray, Vector
from services.strategies.base import Gradient, Outcome, Peer
from services.strategies.servers import Held, ServedStrategy

BETA = 0.9  # α = β/n, the paper's choice


@dataclass(frozen=True)
class Tied:
    """What a worker keeps between steps."""

    moments: Moments  # of its own optimiser
    held: tuple[Held, ...]  # by shard
    centre: Vector  # as it was after this worker's last exchange, as far as the worker knows
    unsent: int = 0  # samples since then
    samples: int = 0  # of all workers, as far as they had been exchanged then
    underway: int = 0  # of the others: until the first exchange as many as they do in as many steps


class Easgd(ServedStrategy):
    """Elastic averaging SGD; EAMSGD with the optimiser `momentum` and `nesterov`.

    The spring is as strong as α, `moving_rate`; 0 leaves workers independent and the centre where it was. Samples count
    when they are exchanged; who leaves exchanges what is left. Before the first exchange nobody hears of the others,
    and takes them to have done as many steps. We differ: the exchange follows the local step instead of preceding it,
    and the worker's step after it begins where the spring has left it.
    """

    kind: Literal["easgd"] = "easgd"
    period: PositiveInt = Field(10, description="local steps from one exchange to the next: τ")
    moving_rate: float | None = Field(None, ge=0, lt=1, description="α; 0.9 / workers when absent")

    @property
    def synchronous(self) -> bool:
        return False

    @property
    def exchanges_every(self) -> int:
        return self.period

    def _formula(self, formula: str) -> str:
        return f"({super()._formula(formula).replace('t_c', 'τ·t_c')})/τ"

    def alpha(self, workers: int) -> float:
        """How far worker and centre approach each other in one exchange."""
        return BETA / workers if self.moving_rate is None else self.moving_rate

    def refusal(self, workers: int) -> str | None:
        if not isinstance(self.synchrony, Bsp | Asp):
            return f"easgd exchanges under bsp or asp, not {self.synchrony.kind}"
        if isinstance(self.synchrony, Bsp) and workers * self.alpha(workers) > 1:
            return f"{workers} workers pull the centre beyond them; moving_rate may be 1/{workers} at most under bsp"
        return super().refusal(workers)

    def update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> ElasticRule:  # noqa: ARG002 - workers'
        return ElasticRule(params, self.alpha(workers))

    def init(self, peer: Peer, params: Vector) -> Tied:
        return Tied(peer.optimiser.init(params), self.at_first(peer), params)

    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: Tied, phases: Phases
    ) -> Outcome:
        with phases.span("update"):
            params, moments = peer.optimiser.step(params, gradient.mean, state.moments)
        kept = replace(
            state,
            moments=moments,
            unsent=state.unsent + gradient.samples,
            underway=state.underway if state.samples else state.underway + peer.batch_size(step) - gradient.samples,
        )
        if (step + 1) % self.period == 0:
            return await self._meet(peer, step // self.period, params, kept, phases)
        return Outcome(params, kept, None, kept.samples + kept.unsent, kept.underway, kept.centre)

    async def _meet(self, peer: Peer, number: int, params: Vector, state: Tied, phases: Phases) -> Outcome:
        """Worker and centre approach each other."""
        told = await self.exchange(peer, number, params, state.unsent, state.held, phases)
        with phases.span("update"):
            centre = peer.device.to_device(told.fresh)
            moved = pull(self.alpha(len(peer.workers)), params, centre)
            state = Tied(state.moments, told.held, centre + moved, 0, told.samples, told.underway)
        return Outcome(params - moved, state, told.staleness, told.samples, told.underway, state.centre)

    async def finish(self, peer: Peer, step: int, outcome: Outcome, phases: Phases) -> None:
        if step % self.period:  # even if it has had no samples since: servers number what comes
            await self._meet(peer, step // self.period, outcome.params, outcome.state, phases)

    async def leave(self, peer: Peer, step: int) -> None:
        await super().leave(peer, -(-step // self.period))
