"""All-reduce: every worker ends the exchange with the sum of all gradients and updates its own replica."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from services.collectives import AnyCollective, Ring, Route
from services.collectives.executor import all_reduce
from services.device import Vector
from services.layout import ranges
from services.runlog import Phases
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, State, Strategy


class AllReduce(Strategy):
    """Synchronous data parallelism: every gradient is weighted by its share of the samples, and all are summed.

    Sums are formed along fixed routes, so all replicas hold the same bits and a run repeats with its seed.
    """

    kind: Literal["all_reduce"] = "all_reduce"
    collective: AnyCollective = Field(default=Ring())

    def routes(self, workers: int) -> tuple[Route, ...]:
        return self.collective.routes(workers)

    def bytes_per_step(self, workers: int, entries: int, itemsize: int) -> Sent:
        return Sent(workers=tuple(payload(self.routes(workers), rank, entries) * itemsize for rank in range(workers)))

    def predict(self, cost: Cost) -> Predicted:
        exchange_s = self.collective.seconds(cost.workers, cost.size_bytes, cost.alpha_s, cost.beta_s)
        return Predicted(compute_s=cost.compute_s, exchange_s=exchange_s, formula=f"t_c + {self.collective.formula}")

    def init(self, peer: Peer, params: Vector) -> State:
        return peer.optimiser.init(params)

    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: State, phases: Phases
    ) -> Outcome:
        with phases.span("exchange"):
            own = peer.device.to_host(gradient.mean)
            mean = own * own.dtype.type(gradient.samples / peer.batch_size(step))
            await all_reduce(peer.transport, peer.workers, peer.rank, peer.routes, step, mean)
        with phases.span("update"):
            return Outcome(*peer.optimiser.step(params, peer.device.to_device(mean), state))


def payload(routes: Sequence[Route], rank: int, entries: int) -> int:
    """Entries that `rank` sends when a vector of `entries` goes along `routes`."""
    chunks = ranges(entries, len(routes)) if routes else ()
    return sum(route.sends(rank) * chunk.size for route, chunk in zip(routes, chunks, strict=True))
