"""Local SGD: every worker trains parameters of its own, and every so many steps all take the mean of all.

S. U. Stich, "Local SGD converges fast and communicates little", ICLR 2019; weighted by samples as in H. B. McMahan et
al., "Communication-efficient learning of deep networks from decentralized data" (FedAvg), AISTATS 2017.
"""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, PositiveInt

from services.collectives import AnyCollective, Ring, Schedule, Site
from services.collectives.execution.executor import all_reduce
from services.compressors import AnyCompressor, Compressor, Identity
from services.learning.optimisers import State as Moments
from services.runtime.run_log import Phases
from services.schema.arrays import Vector
from services.strategies.all_reduce import AllReduce
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, Strategy, spread


@dataclass(frozen=True)
class Apart:
    """What a worker keeps between steps."""

    moments: Moments  # of its own optimiser
    own: int = 0  # samples since the last exchange
    all: int = 0  # of all workers


class LocalSgd(Strategy):
    """One all-reduce of parameters per `period` steps, which divides an epoch: where quality is measured all agree.

    With a period of one it is all_reduce, rounding apart, as long as updates are linear in the gradient and shares are
    equal. Moments of optimisers stay where they are: they are not averaged.
    """

    kind: Literal["local_sgd"] = "local_sgd"
    period: PositiveInt = Field(description="local steps between exchanges; it divides those of an epoch")
    collective: AnyCollective = Field(default=Ring(), description="who sums what with whom")
    compress: AnyCompressor = Field(default=Identity(), description="number format on the wire, at every hop")

    @property
    def _sum(self) -> AllReduce:
        """What happens in an exchange."""
        return AllReduce(collective=self.collective, compress=self.compress)

    @property
    def number_format(self) -> Compressor:
        return self.compress

    @property
    def exchanges_every(self) -> int:
        return self.period

    def refusal(self, workers: int) -> str | None:
        return self._sum.refusal(workers)

    def settled(self, site: Site, cost: Cost) -> Self:
        return self.model_copy(update={"collective": self._sum.settled(site, cost).collective})

    def choices(self, site: Site, cost: Cost) -> dict[str, float]:
        return {name: taken / self.period for name, taken in self._sum.choices(site, cost).items()}

    def schedule(self, workers: int) -> Schedule:
        return self._sum.schedule(workers)

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        whole = self._sum.bytes_per_step(workers, entries, dtype)
        return Sent(workers=tuple(spread(int(count), self.period) for count in whole.workers))

    def predict(self, cost: Cost) -> Predicted:
        """An exchange for `period` steps; a bound from above where speeds vary, since slow steps meet fast ones."""
        every = self._sum.predict(cost)
        exchange_s, form = every.exchange_s / self.period, every.formula.removeprefix("t_c + ")
        return Predicted(compute_s=every.compute_s, exchange_s=exchange_s, formula=f"t_c + ({form})/τ")

    def init(self, peer: Peer, params: Vector) -> Apart:
        return Apart(peer.optimiser.init(params))

    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: Apart, phases: Phases
    ) -> Outcome:
        with phases.span("update"):
            params, moments = peer.optimiser.step(params, gradient.mean, state.moments)
        kept = Apart(moments, state.own + gradient.samples, state.all + peer.batch_size(step))
        if (step + 1) % self.period:
            return Outcome(params, kept)
        with phases.span("exchange"):
            host = peer.device.to_host(params)
            mean = host * host.dtype.type(kept.own / kept.all)
            number = step // self.period
            await all_reduce(peer.transport, peer.workers, peer.rank, peer.schedule, number, mean, self.compress)
            return Outcome(peer.device.to_device(mean), Apart(moments))
