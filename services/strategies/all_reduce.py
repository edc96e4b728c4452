"""All-reduce: every worker ends the exchange with the sum of all gradients and updates its own replica."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field

from services.collectives import AnyCollective, Ring, Schedule, Site
from services.collectives.base import Edge
from services.collectives.execution.executor import all_reduce
from services.compressors import AnyCompressor, Compressor, Identity
from services.learning.optimisers import State as Kept
from services.runtime.run_log import Phases
from services.schema.arrays import Vector
from services.strategies.base import Cost, Flow, Gradient, Outcome, Peer, Predicted, Sent, State, Strategy


class AllReduce(Strategy):
    """Synchronous data parallelism: every gradient is weighted by its share of the samples, and all are summed.

    Sums are formed in a fixed order, so all replicas hold the same bits and a run repeats with its seed.
    """

    kind: Literal["all_reduce"] = "all_reduce"
    collective: AnyCollective = Field(default=Ring(), description="who sums what with whom")
    compress: AnyCompressor = Field(default=Identity(), description="number format on the wire, at every hop")

    @property
    def number_format(self) -> Compressor:
        return self.compress

    def refusal(self, workers: int) -> str | None:
        if self.compress.init(1) is None:
            return self.collective.refusal(workers)
        return f"all_reduce adds on the way, so it takes compressors without memory; {self.compress.kind} has one"

    def settled(self, site: Site, cost: Cost) -> Self:
        first, *others = self._candidates(site)
        return min(first, *others, key=lambda each: each.predict(cost).exchange_s) if others else first

    def choices(self, site: Site, cost: Cost) -> dict[str, float]:
        first, *others = self._candidates(site)
        return {str(each.collective.kind): each.predict(cost).exchange_s for each in (first, *others) if others}

    def _candidates(self, site: Site) -> list[Self]:
        return [self.model_copy(update={"collective": each}) for each in self.collective.candidates(site)]

    def schedule(self, workers: int) -> Schedule:
        return self.collective.schedule(workers)

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        sent = self.schedule(workers).sent(workers, entries, lambda size: self.compress.nbytes(size, dtype))
        return Sent(workers=sent)

    def predict(self, cost: Cost) -> Predicted:
        """The closed form in seconds per byte of this network, and the waits of the longest chain of transfers.

        A step begins to exchange when the slowest has computed: E[X_(n:n)] where speeds vary.
        """
        ranks, schedule = len(cost.workers), self.schedule(len(cost.workers))
        size_bytes = self.compress.nbytes(cost.entries, cost.dtype)
        flows = {edge: (cost.workers[edge[0]], cost.workers[edge[1]]) for edge in schedule.edges}
        moving_s = self.collective.seconds(ranks, size_bytes, 0.0, _beta_s(schedule, cost))
        waits_s = schedule.latency_s({edge: cost.latency_s([flow]) for edge, flow in flows.items()})
        hidden_s = self._hidden_s(schedule, cost, moving_s, waits_s)
        return Predicted(
            compute_s=cost.computed_s(ranks),
            exchange_s=moving_s + waits_s - hidden_s,
            formula=f"t_c + {self.collective.formula}" + (", less what pieces hide of α" if hidden_s else ""),
        )

    def _hidden_s(self, schedule: Schedule, cost: Cost, moving_s: float, waits_s: float) -> float:
        if cost.lengths is None:
            return 0.0
        piece_bytes = schedule.piece_bytes(cost.vector_bytes, *cost.lengths)
        return self.collective.hidden_s(len(cost.workers), cost.vector_bytes, piece_bytes, moving_s, waits_s)

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
            await all_reduce(peer.transport, peer.workers, peer.rank, peer.schedule, step, mean, self.compress)
        with phases.span("update"):
            return Outcome(*peer.optimiser.step(params, peer.device.to_device(mean), state))


def _beta_s(schedule: Schedule, cost: Cost) -> float:
    """Seconds per byte: what the rounds take on this network, over what they take where each port moves one a second.

    On equal links behind a switch it is their seconds per byte, whatever the schedule.
    """
    links = dict.fromkeys(cost.workers, 1.0)
    equal = Cost(workers=cost.workers, entries=1, dtype=cost.dtype, uplinks_s=links, downlinks_s=links, compute_s=0.0)
    taken = seconds = 0.0
    for load, rounds in Counter(_by_name(load, cost.workers) for load in schedule.loads).items():
        taken += rounds * cost.moving_s(load)
        seconds += rounds * equal.moving_s(load)
    return taken / seconds if seconds else 0.0


def _by_name(load: Mapping[Edge, int], names: Sequence[str]) -> tuple[tuple[Flow, int], ...]:
    """What each flow carries in a round; equal for rounds in which the same happens."""
    return tuple(sorted(((names[source], names[target]), weight) for (source, target), weight in load.items()))
