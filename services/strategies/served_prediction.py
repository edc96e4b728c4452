"""Closed form of the step time of strategies with servers.

The push and the reply of a shard do not overlap: a server replies when it has received the whole shard.

Synchronous: all workers share the links of the servers at once. A step ends when as many workers have computed as an
update needs: the order statistic E[X_(k:n)] where speeds vary. Workers that the previous step did not wait for start
late (`order_statistics.expected_round`).

Asynchronous: a worker has the links to itself until they are saturated, and each worker has its own step time
(`saturation`). s servers accept at most s/(S'β_s) vectors per second and send as many replies. With a bound on
staleness, all workers are as fast as the slowest. S' is the compressed size of S; β_w belongs to the slowest worker's
link and β_s to the slowest server's link, each in the direction of the bytes. A pipe that flows share counts as a link.
A node that serves and computes has one link for both.

Saturation is a lower bound: workers that start together keep pushing together and then wait together. Not modelled: the
time until a staleness bound is reached, and links that late pushes of backup workers occupy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from services.cluster.fluid_link import last_piece_bytes
from services.learning.layout import VectorRange
from services.parameter_server.placement import Dedicated
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.strategies import saturation
from services.strategies.cost_model import CostModel, FlowBytes, StepPrediction

SYNCHRONOUS = "{t_c} + 2α + S'·max(β_w, n/s·β_s) + S·max(β_w, n/s·β_s)"
ASYNCHRONOUS = "max({t_c} + 2α + (S'+S)·max(β_w, β_s/s) - (s-1)·q·β_w, n/s·Sβ_s)"


@dataclass(frozen=True)
class ServedPrediction:
    """The closed form of one training phase with servers on one cluster."""

    algorithm: ServerAlgorithm
    exchange_period: int
    cost: CostModel

    def step(self) -> StepPrediction:
        """Return the predicted step time."""
        workers = len(self.cost.workers)
        computing = self.algorithm.computing_workers(workers)
        if computing < workers:
            dedicated = replace(self.algorithm, placement=Dedicated(), servers=workers - computing)
            return replace(self, algorithm=dedicated, cost=_promoted(self.cost, computing)).step()
        return self._synchronous() if self.algorithm.synchroniser.in_rounds else self._asynchronous()

    def saturation_workers(self) -> float:
        """Return the number of workers beyond which more add no speed in asynchronous training; inf without a limit.

        At n* = s·(t_c·B/S + 2), more with latency, the time of a worker that has all links to itself equals the time in
        which the shared links carry everybody's bytes; the latter is proportional to n. s shards of one message each
        reply in turn while later ones still receive: then a worker alone is faster, and n* is s·(t_c·B/S + 1) + 1.
        """
        cost = self.cost
        alone_s = max(
            _alone_s(worker, *_of_worker(worker, self._pushes, self._replies), cost) for worker in cost.workers
        )
        owners = {target for (_, target), _ in self._pushes}
        own_links = {(direction, name) for direction in ("up", "down") for name in set(cost.workers) - owners}
        busy_s = cost.busy_s([*self._pushes, *self._replies])
        shared_s = max((seconds for link, seconds in busy_s.items() if link not in own_links), default=0.0)
        round_s = max(cost.expected_compute_s) * self.exchange_period + alone_s
        return len(cost.workers) * round_s / shared_s if shared_s else inf

    def _synchronous(self) -> StepPrediction:
        workers = len(self.cost.workers)
        gradients = self.algorithm.gradients_per_update(workers)
        exchange_s = _exchange_s(self._pushes, self._replies, self.cost) / self.exchange_period
        return StepPrediction(
            compute_s=self.cost.kth_compute_s(gradients, exchange_s),
            exchange_s=exchange_s,
            formula=self._formula(SYNCHRONOUS),
            counted=gradients / workers,
        )

    def _asynchronous(self) -> StepPrediction:
        worker_s = self._worker_step_s()
        steps_s = (max(worker_s),) * len(worker_s) if self.algorithm.synchroniser.bounded else worker_s
        compute_s = max(self.cost.expected_compute_s)
        return StepPrediction(
            compute_s=compute_s,
            exchange_s=max(steps_s) - compute_s,
            formula=self._formula(ASYNCHRONOUS),
            steps_s=steps_s,
        )

    def _worker_step_s(self) -> tuple[float, ...]:
        """Return the step time of each worker; a step with an exchange counts for the steps without one."""
        alone_s, busy_s = [], []
        for compute_s, worker in zip(self.cost.expected_compute_s, self.cost.workers, strict=True):
            pushes, replies = _of_worker(worker, self._pushes, self._replies)
            alone_s.append(self.exchange_period * compute_s + _alone_s(worker, pushes, replies, self.cost))
            busy_s.append(self.cost.busy_s([*pushes, *replies]))
        return tuple(seconds / self.exchange_period for seconds in saturation.steps_s(alone_s, busy_s))

    def _formula(self, formula: str) -> str:
        """Return the closed form as text."""
        text = formula.format(t_c="E[X_(n-b:n)]" if self.algorithm.synchroniser.kind == "backup" else "t_c")
        return text if self.exchange_period == 1 else f"({text.replace('t_c', 'τ·t_c')})/τ"

    @cached_property
    def _pushes(self) -> list[FlowBytes]:
        return [
            ((worker, owner), self.algorithm.compressor.nbytes(shard.size, self.cost.dtype))
            for owner, shard in self._owned_shards()
            for worker in self.cost.workers
            if worker != owner
        ]

    @cached_property
    def _replies(self) -> list[FlowBytes]:
        itemsize = np.dtype(self.cost.dtype).itemsize
        return [
            ((owner, worker), shard.size * itemsize)
            for owner, shard in self._owned_shards()
            for worker in self.cost.workers
            if worker != owner
        ]

    def _owned_shards(self) -> Iterator[tuple[str, VectorRange]]:
        owners = self.algorithm.shard_owners(self.cost.workers, self.cost.servers)
        return zip(owners, self.algorithm.shards(len(self.cost.workers), self.cost.entries), strict=True)


def _promoted(cost: CostModel, computing: int) -> CostModel:
    """Return the cluster in which the first `computing` workers compute the whole batch in equal shares."""
    factor = len(cost.workers) / computing
    return cost.model_copy(
        update={
            "workers": cost.workers[:computing],
            "servers": cost.workers[computing:],
            "compute_s": max(cost.computes_s[:computing], default=cost.compute_s) * factor,
            "computes_s": tuple(seconds * factor for seconds in cost.computes_s[:computing]),
            "variations": cost.variations[:computing],
        }
    )


def _of_worker(
    worker: str, pushes: Sequence[FlowBytes], replies: Sequence[FlowBytes]
) -> tuple[list[FlowBytes], list[FlowBytes]]:
    """Return the pushes and the replies of one worker."""
    return [load for load in pushes if load[0][0] == worker], [load for load in replies if load[0][1] == worker]


def _exchange_s(pushes: Sequence[FlowBytes], replies: Sequence[FlowBytes], cost: CostModel) -> float:
    """Return the seconds until the last reply has arrived when all are pushed at once on idle links."""
    latency_s = cost.latency_s([flow for flow, _ in pushes]) + cost.latency_s([flow for flow, _ in replies])
    return latency_s + cost.transfer_s(pushes) + cost.transfer_s(replies)


def _alone_s(worker: str, pushes: Sequence[FlowBytes], replies: Sequence[FlowBytes], cost: CostModel) -> float:
    """Return the exchange time of one worker alone, whose messages to several shards are sent one after the other.

    The first shards reply before the last ones have received everything. Only the last piece of a later push is behind
    the last piece of the first push. Shards on workers gain nothing: their uplinks send the worker's own pushes first.
    """
    if len(pushes) < 2:  # noqa: PLR2004 - there is no other shard
        return _exchange_s(pushes, replies, cost)
    busy_s = cost.busy_s(pushes)
    is_sequential = busy_s["up", worker] == max(busy_s.values())
    last_pieces = [
        (flow, last_piece_bytes(size, cost.vector_bytes)) for flow, size in pushes[1:] if flow[1] not in cost.workers
    ]
    early_s = cost.busy_s(last_pieces).get(("up", worker), 0.0) if is_sequential else 0.0
    slowest_reply_s = max(cost.transfer_s([load]) for load in replies)
    return _exchange_s(pushes, replies, cost) - min(early_s, cost.transfer_s(replies) - slowest_reply_s)
