"""All-reduce: every worker ends the exchange with the sum of all gradients and updates its own replica."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from services.collectives import AnyCollective, Ring, Route
from services.collectives.executor import all_reduce
from services.compressors import AnyCompressor, Compressor, Identity
from services.device import Vector
from services.layout import ranges
from services.optimisers import State as Kept
from services.runlog import Phases
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, State, Strategy


class AllReduce(Strategy):
    """Synchronous data parallelism: every gradient is weighted by its share of the samples, and all are summed.

    Sums are formed along fixed routes, so all replicas hold the same bits and a run repeats with its seed.
    """

    kind: Literal["all_reduce"] = "all_reduce"
    collective: AnyCollective = Field(default=Ring(), description="who sums what with whom")
    compress: AnyCompressor = Field(default=Identity(), description="number format on the wire, at every hop")

    @property
    def number_format(self) -> Compressor:
        return self.compress

    def routes(self, workers: int) -> tuple[Route, ...]:
        return self.collective.routes(workers)

    def refusal(self, workers: int) -> str | None:  # noqa: ARG002 - any number of workers can form a ring
        if self.compress.init(1) is None:
            return None
        return f"all_reduce adds on the way, so it takes compressors without memory; {self.compress.kind} has one"

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        routes = self.routes(workers)
        return Sent(workers=tuple(self._sends(routes, rank, entries, dtype) for rank in range(workers)))

    def _sends(self, routes: Sequence[Route], rank: int, entries: int, dtype: str) -> int:
        """Payload bytes that `rank` sends when a vector of `entries` goes along `routes`."""
        chunks = ranges(entries, len(routes)) if routes else ()
        sent = zip(routes, chunks, strict=True)
        return sum(route.sends(rank) * self.compress.nbytes(chunk.size, dtype) for route, chunk in sent)

    def predict(self, cost: Cost) -> Predicted:
        size_bytes, ranks = self.compress.nbytes(cost.entries, cost.dtype), len(cost.workers)
        routes = self.routes(ranks)
        edges = {edge for route in routes for edge in (*route.sums, *route.spreads)}
        flows = {edge: (cost.workers[edge[0]], cost.workers[edge[1]]) for edge in edges}
        moving_s = self.collective.seconds(ranks, size_bytes, 0.0, cost.together_s(list(flows.values()), 1.0))
        waits_s = {edge: cost.latency_s([flow]) for edge, flow in flows.items()}
        exchange_s = moving_s + max((route.latency_s(waits_s) for route in routes), default=0.0)
        return Predicted(compute_s=cost.compute_s, exchange_s=exchange_s, formula=f"t_c + {self.collective.formula}")

    def init(self, peer: Peer, params: Vector) -> State:
        return peer.optimiser.init(params)

    def resume(self, peer: Peer, params: Vector, version: int, kept: Kept) -> State:  # noqa: ARG002 - replicas have it all
        return kept

    def replicated(self, state: State) -> Kept:
        kept: Kept = state
        return kept

    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: State, phases: Phases
    ) -> Outcome:
        with phases.span("exchange"):
            own = peer.device.to_host(gradient.mean)
            mean = own * own.dtype.type(gradient.samples / peer.batch_size(step))
            await all_reduce(peer.transport, peer.workers, peer.rank, peer.routes, step, mean, self.compress)
        with phases.span("update"):
            return Outcome(*peer.optimiser.step(params, peer.device.to_device(mean), state))
