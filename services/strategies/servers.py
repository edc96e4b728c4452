"""What strategies with servers have in common: where shards live, what is pushed and answered, and what that costs."""

import asyncio
from abc import ABC
from collections.abc import Iterator, Sequence
from math import inf
from sys import maxsize
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from services.cluster.fluid_link import last_piece_bytes
from services.compressors import to_wire
from services.learning.layout import Range
from services.parameter_server.placement import AnyPlacement, Dedicated
from services.parameter_server.staleness import UNWEIGHTED, AnyStaleness
from services.parameter_server.synchronisers import AnySynchroniser, Bsp
from services.runtime.run_log import Phases
from services.runtime.transport import Message, Stage, Tag
from services.runtime.vector_messages import recv_rest, send_vector
from services.schema.arrays import HostArray, Vector
from services.strategies import saturation
from services.strategies.base import Cost, Load, Peer, Predicted, Sent, Strategy, spread


class Held(NamedTuple):
    """What a worker keeps about one shard."""

    version: int  # of the parameters that it holds
    memory: Any  # the compressor's
    alone: bool = False  # it has said that the next push waits for nobody; of the first shard that counts for all


class Answered(NamedTuple):
    """What all shards have answered to one push."""

    fresh: HostArray  # the whole vector
    held: tuple[Held, ...]  # by shard
    staleness: float  # mean over shards
    samples: int  # as the first shard counts them
    underway: int


class ServedStrategy(Strategy, ABC):
    """Workers push a vector to the nodes that hold its ranges, and get one of the same length back."""

    servers: int = Field(default=1, ge=1, description="how many nodes hold the parameters, a range each")
    placement: AnyPlacement = Field(default=Dedicated(), description="which nodes hold the parameters")
    synchrony: AnySynchroniser = Field(default=Bsp(), description="when a server updates and answers")

    @property
    def server_count(self) -> int:
        return self.placement.nodes(self.servers)

    @property
    def gradients_worth(self) -> AnyStaleness:
        """What a server makes of old vectors."""
        return UNWEIGHTED

    def gathers(self, workers: int) -> int:
        return self.synchrony.gathers(self.computing(workers))

    def computing(self, workers: int) -> int:
        return self.placement.computing(workers)

    def refusal(self, workers: int) -> str | None:
        refusals = (self.synchrony.refusal(workers), self.placement.refusal(workers, self.servers))
        return next((reason for reason in refusals if reason), self.refusal_of_servers(workers))

    def refusal_of_servers(self, workers: int) -> str | None:
        """Why it takes one server where there are several, each with an order of arrival of its own."""
        count, what = len(self.shards(workers, entries=1)), f"synchrony {self.synchrony.kind}"
        drops = self.synchrony.comes_apart and not self.gradients_worth.takes(maxsize)
        if count == 1 or not (drops or self.synchrony.needs_one_server):
            return None
        return (
            f"{what}{f' with staleness {self.gradients_worth.kind}' if drops else ''} takes one server: of {count}, "
            "each would leave out other gradients, and two could keep workers back for each other for ever"
        )

    def holders(self, workers: Sequence[str], servers: Sequence[str]) -> tuple[str, ...]:
        return self.placement.holders(workers, servers)

    def shards(self, workers: int, entries: int) -> tuple[Range, ...]:
        return self.placement.ranges(workers, self.servers, entries)

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        nodes = range(workers + self.server_count)
        pushed, answered = [0] * len(nodes), [0] * len(nodes)
        holders = self.placement.holders(nodes[:workers], nodes[workers:])
        for holder, shard in zip(holders, self.shards(workers, entries), strict=True):
            for worker in nodes[: self.computing(workers)]:
                if worker != holder:
                    pushed[worker] += self.number_format.nbytes(shard.size, dtype)
                    answered[holder] += shard.size * np.dtype(dtype).itemsize
        total = [spread(out + back, self.exchanges_every) for out, back in zip(pushed, answered, strict=True)]
        answers = tuple(spread(back, self.exchanges_every) for back in answered[:workers])
        return Sent(workers=tuple(total[:workers]), servers=tuple(total[workers:]), answers=answers)

    def predict(self, cost: Cost) -> Predicted:
        """Push and pull of a range do not overlap: a server answers when it has received the whole of it.

        In rounds, all workers share the links of the servers at once, and a round ends when as many have computed as an
        update gathers: the order statistic E[X_(k:n)] where speeds vary, with late starts of those that the round
        before did not wait for (`order_statistics.expected_round`). Otherwise a worker has the links to itself
        until they are saturated, and each has a step of its own (`saturation`): s servers take at most s/(S'β_s)
        vectors per second, and give as many answers. Where the gap is bounded, all go at the pace of the slowest. S' is
        S compressed; β_w is of the slowest worker's link, β_s of the slowest server's, each in the direction that the
        bytes go; pipes that flows share count like links, and who serves and computes has one link for both.
        Saturation is a lower bound: workers that started together go on pushing together and then wait together. Not
        modelled: the time before a bound is reached, and links that late pushes of backups keep busy.
        """
        if self.computing(len(cost.workers)) < len(cost.workers):
            once = _once_promoted(cost, self.computing(len(cost.workers)))
            dedicated = {"placement": Dedicated(), "servers": len(cost.workers) - len(once.workers)}
            return self.model_copy(update=dedicated).predict(once)
        return self._in_rounds(cost) if self.synchrony.in_rounds else self._apart(cost)

    def _in_rounds(self, cost: Cost) -> Predicted:
        up, down = list(self._up(cost)), list(self._down(cost))
        gathers = self.synchrony.gathers(len(cost.workers))
        exchange_s = _there_and_back_s(up, down, cost) / self.exchanges_every
        return Predicted(
            compute_s=cost.computed_s(gathers, exchange_s),
            exchange_s=exchange_s,
            formula=self._formula(_TOGETHER),
            counted=gathers / len(cost.workers),
        )

    def _apart(self, cost: Cost) -> Predicted:
        found = self._steps_s(cost)
        steps_s = (max(found),) * len(found) if self.synchrony.bounded else found
        compute_s = max(cost.expected_s)
        return Predicted(
            compute_s=compute_s,
            exchange_s=max(steps_s) - compute_s,
            formula=self._formula(_APART),
            steps_s=steps_s,
        )

    def _steps_s(self, cost: Cost) -> tuple[float, ...]:
        """Of each worker; one in which it exchanges counts for those in which it does not."""
        up, down = list(self._up(cost)), list(self._down(cost))
        own_s, busy_s = [], []
        for compute_s, worker in zip(cost.expected_s, cost.workers, strict=True):
            pushed, pulled = _of(worker, up, down)
            own_s.append(self.exchanges_every * compute_s + _alone_s(worker, pushed, pulled, cost))
            busy_s.append(cost.busy_s([*pushed, *pulled]))
        return tuple(each_s / self.exchanges_every for each_s in saturation.steps_s(own_s, busy_s))

    def saturates_at(self, cost: Cost) -> float:
        """Workers n* beyond which more of them gain nothing out of lockstep: s·(t_c·B/S + 2), more with latency.

        There the time of a worker that has all links to itself equals the time in which the links that all share carry
        everybody's bytes; those grow with n in proportion. s shards of one message each answer in turn, while later
        ones are still pushed to: then a worker alone is faster, and n* is s·(t_c·B/S + 1) + 1.
        """
        up, down = list(self._up(cost)), list(self._down(cost))
        alone_s = max(_alone_s(worker, *_of(worker, up, down), cost) for worker in cost.workers)
        own = {(way, name) for way in ("up", "down") for name in set(cost.workers) - {to for (_, to), _ in up}}
        shared_s = max((busy for port, busy in cost.busy_s([*up, *down]).items() if port not in own), default=0.0)
        round_s = max(cost.expected_s) * self.exchanges_every + alone_s
        return len(cost.workers) * round_s / shared_s if shared_s else inf

    def _formula(self, formula: str) -> str:
        """The closed form as it is written."""
        return formula.format(t_c="E[X_(n-b:n)]" if self.synchrony.kind == "backup" else "t_c")

    def _up(self, cost: Cost) -> Iterator[Load]:
        for holder, shard in self._held(cost):
            size_bytes = self.number_format.nbytes(shard.size, cost.dtype)
            yield from (((worker, holder), size_bytes) for worker in cost.workers if worker != holder)

    def _down(self, cost: Cost) -> Iterator[Load]:
        for holder, shard in self._held(cost):
            size_bytes = shard.size * np.dtype(cost.dtype).itemsize
            yield from (((holder, worker), size_bytes) for worker in cost.workers if worker != holder)

    def _held(self, cost: Cost) -> Iterator[tuple[str, Range]]:
        held = self.holders(cost.workers, cost.servers), self.shards(len(cost.workers), cost.entries)
        return zip(*held, strict=True)

    def partners(self, peer: Peer) -> tuple[str, ...]:
        return tuple(peer.servers)

    async def leave(self, peer: Peer, step: int) -> None:
        for server in peer.servers:
            await peer.transport.send(server, Message(Tag(step, Stage.LEAVE)))

    def at_first(self, peer: Peer) -> tuple[Held, ...]:
        """What a worker knows of every shard before the first push: version 0 is the same everywhere."""
        return tuple(Held(0, self.number_format.init(shard.size)) for shard in peer.shards)

    async def exchange(
        self, peer: Peer, number: int, vector: Vector, samples: int, held: Sequence[Held], phases: Phases
    ) -> Answered:
        """Push `vector`, the `number`-th one from 0, to all shards at once and wait for all answers.

        Of the answer that came last, its update counts as `update` and what it was kept back before, for others to
        push, as `wait`; the rest is `exchange`.
        """
        fresh = np.empty(vector.shape, vector.dtype)
        took_s, alone = phases.seconds.get("compute", 0.0), held[0].alone
        about = Message(Tag(number, Stage.PUSH), samples=samples, update_s=took_s, alone=alone)
        answered: dict[int, tuple[Message, Held]] = {}  # in the order in which they come

        async def exchange(shard: int) -> None:
            answered[shard] = await self._exchange(peer, about, shard, held[shard], vector, fresh)

        with phases.span("exchange"):
            async with asyncio.TaskGroup() as group:  # one failure ends the others
                for shard in self._in_turn(peer.rank, len(held)):
                    group.create_task(exchange(shard))
        *_, (last, _) = answered.values()
        answers = [answered[shard] for shard in range(len(held))]
        phases.add("exchange", -last.waited_s - last.update_s)
        phases.add("wait", last.waited_s)
        phases.add("update", last.update_s)
        after = tuple(known for _, known in answers)
        stale = [new.version - old.version - 1 for new, old in zip(after, held, strict=True)]
        first, _ = answers[0]
        return Answered(fresh, after, float(np.mean(stale)), first.samples, first.underway)

    def _in_turn(self, rank: int, shards: int) -> tuple[int, ...]:
        """Every worker begins with another shard: all at once would queue for one link while the others are idle."""
        return tuple((rank + 1 + later) % shards for later in range(shards))

    async def _exchange(
        self, peer: Peer, about: Message, shard: int, held: Held, vector: Vector, fresh: HostArray
    ) -> tuple[Message, Held]:
        """Push one shard its range of the vector and fill that range of `fresh`; the answer's first piece."""
        server, kept = peer.servers[shard], peer.shards[shard]
        payload, memory = self.number_format.compress(kept.of(vector), held.memory)
        push = about._replace(version=held.version)
        await send_vector(peer.transport, server, push, to_wire(payload, peer.device.to_host))
        reply = await peer.transport.recv(server, Tag(about.tag.step, Stage.REPLY))
        await recv_rest(peer.transport, server, reply, kept.of(fresh))
        return reply, Held(reply.version, memory, reply.alone)


def _once_promoted(cost: Cost, computing: int) -> Cost:
    """Where the first `computing` workers compute the whole batch; shares count as equal."""
    more = len(cost.workers) / computing
    return cost.model_copy(
        update={
            "workers": cost.workers[:computing],
            "servers": cost.workers[computing:],
            "compute_s": max(cost.computes_s[:computing], default=cost.compute_s) * more,
            "computes_s": tuple(seconds * more for seconds in cost.computes_s[:computing]),
            "variations": cost.variations[:computing],
        }
    )


def _of(worker: str, up: Sequence[Load], down: Sequence[Load]) -> tuple[list[Load], list[Load]]:
    """What one worker pushes, and what it is answered."""
    return [load for load in up if load[0][0] == worker], [load for load in down if load[0][1] == worker]


def _there_and_back_s(up: Sequence[Load], down: Sequence[Load], cost: Cost) -> float:
    """Until the last of these answers is there, when all are pushed at once and nobody else is on the links."""
    latency_s = cost.latency_s([flow for flow, _ in up]) + cost.latency_s([flow for flow, _ in down])
    return latency_s + cost.moving_s(up) + cost.moving_s(down)


def _alone_s(worker: str, up: Sequence[Load], down: Sequence[Load], cost: Cost) -> float:
    """The same for one worker, whose messages to several shards go out in turn: the first are answered before the last.

    Until its last pushes are through, whose last pieces alone are behind that of the first, shards answer already. Not
    so those of workers, whose uplinks have pushes of their own to pass on first.
    """
    if len(up) < 2:  # noqa: PLR2004 - there is no other
        return _there_and_back_s(up, down, cost)
    busy_s = cost.busy_s(up)
    in_turn = busy_s["up", worker] == max(busy_s.values())
    last = [(flow, last_piece_bytes(size, cost.vector_bytes)) for flow, size in up[1:] if flow[1] not in cost.workers]
    early_s = cost.busy_s(last).get(("up", worker), 0.0) if in_turn else 0.0
    slowest_s = max(cost.moving_s([load]) for load in down)
    return _there_and_back_s(up, down, cost) - min(early_s, cost.moving_s(down) - slowest_s)


_TOGETHER = "{t_c} + 2α + S'·max(β_w, n/s·β_s) + S·max(β_w, n/s·β_s)"
_APART = "max({t_c} + 2α + (S'+S)·max(β_w, β_s/s) - (s-1)·q·β_w, n/s·Sβ_s)"
