"""Parameter server: workers push gradients to the servers that hold the parameters and get fresh parameters back.

M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014. Every server holds one
contiguous range of the flat vector (balanced to one entry) and its part of the optimiser's state.
"""

import asyncio
from typing import Literal

import numpy as np
from pydantic import Field

from services.device import HostArray, Vector
from services.layout import ranges
from services.optimisers import AnyOptimiser
from services.runlog import Phases
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, Strategy
from services.synchronisers import AnySynchroniser, Bsp
from services.transport.base import Message, Stage, Tag
from services.transport.vectors import recv_rest, send_vector

Versions = tuple[int, ...]  # by shard: of the parameters that the worker holds


class ParameterServer(Strategy):
    """Push, then pull, once per step. Under `bsp` a server answers when all have pushed; under `asp` at once."""

    kind: Literal["parameter_server"] = "parameter_server"
    servers: int = Field(default=1, ge=1, description="how many nodes hold the parameters, a range each")
    synchrony: AnySynchroniser = Field(default=Bsp(), description="when a server updates and answers")
    rate: Literal["per_sample", "as_given"] = Field(
        default="per_sample",
        description="per_sample: an update from one worker's gradient uses 1/n of the learning rate, so that a sample "
        "counts as much as in lockstep; as_given: the whole rate",
    )

    @property
    def synchronous(self) -> bool:
        return self.synchrony.lockstep

    @property
    def server_count(self) -> int:
        return self.servers

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        if self.rate == "as_given":
            return given
        share = self.synchrony.gathers(workers) / workers
        return given.model_copy(update={"rate": given.rate * share})

    def bytes_per_step(self, workers: int, entries: int, itemsize: int) -> Sent:
        shards = ranges(entries, self.servers)
        return Sent(
            workers=(entries * itemsize,) * workers,
            servers=tuple(workers * shard.size * itemsize for shard in shards),
        )

    def predict(self, cost: Cost) -> Predicted:
        """Push and pull do not overlap: a server answers when it has received the whole of its range.

        In lockstep all workers share the servers' links at once. Otherwise a worker has them to itself until they are
        saturated: s servers pass on at most s/(Sβ) gradients per second.
        """
        one_way_s = cost.size_bytes * cost.beta_s
        if self.synchronous:
            exchange_s = 2 * cost.alpha_s + 2 * one_way_s * max(1.0, cost.workers / self.servers)
            return Predicted(compute_s=cost.compute_s, exchange_s=exchange_s, formula="t_c + 2α + 2Sβ·max(1, n/s)")
        alone_s = cost.compute_s + 2 * cost.alpha_s + 2 * one_way_s
        step_s = max(alone_s, cost.workers * one_way_s / self.servers)
        formula = "max(t_c + 2α + 2Sβ, n·Sβ/s)"
        return Predicted(compute_s=cost.compute_s, exchange_s=step_s - cost.compute_s, formula=formula)

    def init(self, peer: Peer, params: Vector) -> Versions:  # noqa: ARG002 - version 0 is the same everywhere
        return (0,) * self.servers

    async def step(
        self,
        peer: Peer,
        step: int,
        params: Vector,  # noqa: ARG002 - fresh ones come from the servers
        gradient: Gradient,
        state: Versions,
        phases: Phases,
    ) -> Outcome:
        own = peer.device.to_host(gradient.mean)
        fresh = np.empty_like(own)
        with phases.span("exchange"):
            replies = await asyncio.gather(
                *(
                    _push_and_pull(
                        peer, shard, Message(Tag(step, Stage.PUSH), b"", version, gradient.samples), own, fresh
                    )
                    for shard, version in enumerate(state)
                )
            )
        updating_s = max(reply.update_s for reply in replies)
        phases.add("exchange", -updating_s)
        phases.add("update", updating_s)
        versions = tuple(reply.version for reply in replies)
        stale = [new - old - 1 for new, old in zip(versions, state, strict=True)]
        return Outcome(peer.device.to_device(fresh), versions, float(np.mean(stale)), replies[0].samples)

    async def leave(self, peer: Peer, step: int) -> None:
        for server in peer.servers:
            await peer.transport.send(server, Message(Tag(step, Stage.LEAVE)))


async def _push_and_pull(peer: Peer, shard: int, push: Message, own: HostArray, fresh: HostArray) -> Message:
    """Send one server its range of `own` and fill that range of `fresh`; the first piece of the answer."""
    server, held = peer.servers[shard], peer.shards[shard]
    await send_vector(peer.transport, server, push, held.of(own))
    reply = await peer.transport.recv(server, Tag(push.tag.step, Stage.REPLY))
    await recv_rest(peer.transport, server, reply, held.of(fresh))
    return reply
