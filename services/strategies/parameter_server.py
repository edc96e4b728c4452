"""Parameter server: workers push gradients to the servers that hold the parameters and get fresh parameters back.

M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014. Every server holds one
contiguous range of the flat vector (balanced to one entry) and its part of the optimiser's state.
"""

import asyncio
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from services.compressors import AnyCompressor, Compressor, Identity, to_wire
from services.device import HostArray, Vector
from services.layout import ranges
from services.optimisers import AnyOptimiser
from services.runlog import Phases
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, Strategy
from services.synchronisers import AnySynchroniser, Bsp
from services.transport.base import Message, Stage, Tag
from services.transport.vectors import recv_rest, send_vector


class Held(NamedTuple):
    """What a worker keeps about one server's range."""

    version: int  # of the parameters that it holds
    memory: Any  # the compressor's


class ParameterServer(Strategy):
    """Push, then pull, once per step. Under `bsp` a server answers when all have pushed; under `asp` at once."""

    kind: Literal["parameter_server"] = "parameter_server"
    servers: int = Field(default=1, ge=1, description="how many nodes hold the parameters, a range each")
    synchrony: AnySynchroniser = Field(default=Bsp(), description="when a server updates and answers")
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
    def server_count(self) -> int:
        return self.servers

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        if self.rate == "as_given":
            return given
        share = self.synchrony.gathers(workers) / workers
        return given.model_copy(update={"rate": given.rate * share})

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        shards = ranges(entries, self.servers)
        pushed = sum(self.compress.nbytes(shard.size, dtype) for shard in shards)
        return Sent(
            workers=(pushed,) * workers,
            servers=tuple(workers * shard.size * np.dtype(dtype).itemsize for shard in shards),
        )

    def predict(self, cost: Cost) -> Predicted:
        """Push and pull do not overlap: a server answers when it has received the whole of its range.

        In lockstep all workers share the servers' links at once. Otherwise a worker has them to itself until they are
        saturated: s servers take at most s/(S'β_s) gradients per second, and give as many answers. S' is S compressed;
        β_w is of the slowest worker's link, β_s of the slowest server's, each in the direction that the bytes go; pipes
        that flows share count like links. Saturation is a lower bound: workers that started together go on pushing
        together and then wait together.
        """
        pushed = self.compress.nbytes(cost.entries, cost.dtype) / self.servers
        pulled = cost.entries * np.dtype(cost.dtype).itemsize / self.servers
        up = [(worker, server) for worker in cost.workers for server in cost.servers]
        down = [(server, worker) for worker, server in up]
        latency_s = cost.latency_s(up) + cost.latency_s(down)
        together_s = cost.together_s(up, pushed), cost.together_s(down, pulled)
        if self.synchronous:
            formula = "t_c + 2α + S'·max(β_w, n/s·β_s) + S·max(β_w, n/s·β_s)"
            return Predicted(compute_s=cost.compute_s, exchange_s=latency_s + sum(together_s), formula=formula)
        alone_s = max(self._alone_s(cost, worker, pushed, pulled) for worker in cost.workers)
        step_s = max(cost.compute_s + latency_s + alone_s, *together_s)
        formula = "max(t_c + 2α + (S'+S)·max(β_w, β_s/s), n/s·Sβ_s)"
        return Predicted(compute_s=cost.compute_s, exchange_s=step_s - cost.compute_s, formula=formula)

    def _alone_s(self, cost: Cost, worker: str, pushed: float, pulled: float) -> float:
        """Push and pull of one worker that has all links to itself; bytes are per server."""
        up = [(worker, server) for server in cost.servers]
        return cost.together_s(up, pushed) + cost.together_s([(server, worker) for _, server in up], pulled)

    def partners(self, peer: Peer) -> tuple[str, ...]:
        return tuple(peer.servers)

    def init(self, peer: Peer, params: Vector) -> tuple[Held, ...]:  # noqa: ARG002 - version 0 is the same everywhere
        return tuple(Held(0, self.compress.init(shard.size)) for shard in peer.shards)

    async def step(
        self,
        peer: Peer,
        step: int,
        params: Vector,  # noqa: ARG002 - fresh ones come from the servers
        gradient: Gradient,
        state: tuple[Held, ...],
        phases: Phases,
    ) -> Outcome:
        fresh = np.empty(gradient.mean.shape, gradient.mean.dtype)
        with phases.span("exchange"):
            async with asyncio.TaskGroup() as group:  # one failure ends the others
                exchanges = {
                    shard: group.create_task(self._exchange(peer, step, shard, state[shard], gradient, fresh))
                    for shard in _in_turn(peer.rank, len(state))
                }
            answers = [exchanges[shard].result() for shard in range(len(state))]
        updating_s = max(reply.update_s for reply, _ in answers)
        phases.add("exchange", -updating_s)
        phases.add("update", updating_s)
        after = tuple(held for _, held in answers)
        stale = [new.version - old.version - 1 for new, old in zip(after, state, strict=True)]
        return Outcome(peer.device.to_device(fresh), after, float(np.mean(stale)), answers[0][0].samples)

    async def leave(self, peer: Peer, step: int) -> None:
        for server in peer.servers:
            await peer.transport.send(server, Message(Tag(step, Stage.LEAVE)))

    async def _exchange(
        self, peer: Peer, step: int, shard: int, held: Held, gradient: Gradient, fresh: HostArray
    ) -> tuple[Message, Held]:
        """Push one server its range of the gradient and fill that range of `fresh`; the answer's first piece."""
        server, kept = peer.servers[shard], peer.shards[shard]
        payload, memory = self.compress.compress(kept.of(gradient.mean), held.memory)
        push = Message(Tag(step, Stage.PUSH), version=held.version, samples=gradient.samples)
        await send_vector(peer.transport, server, push, to_wire(payload, peer.device.to_host))
        reply = await peer.transport.recv(server, Tag(step, Stage.REPLY))
        await recv_rest(peer.transport, server, reply, kept.of(fresh))
        return reply, Held(reply.version, memory)


def _in_turn(rank: int, shards: int) -> tuple[int, ...]:
    """Every worker begins with another shard: all at once would queue for one link while the others are idle."""
    return tuple((rank + 1 + later) % shards for later in range(shards))
