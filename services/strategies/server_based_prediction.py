"""Formula (closed form) for the step time of strategies with servers.

The push and the reply of a shard do not overlap: a server replies when it has received the whole shard.

Synchronous: all workers use the links of the servers at the same time. A step ends when as many workers have computed
as an update needs: the order statistic E[X_(k:n)] if speeds vary. Workers for which the previous step did not wait
start late (`order_statistics.simulate_mean_round_s`).

Asynchronous: a worker has the links to itself until they are saturated, and each worker has its own step time
(`saturation`). s servers accept at most s/(S'β_s) vectors per second and send as many replies. With a bound on
staleness, all workers are as fast as the slowest.

Symbols: t_c is the compute time of a step, α the latency, n the number of workers, s that of servers, S the vector's
size in bytes and S' its compressed size. β_w is the seconds per byte of the slowest worker's link, β_s that of the
slowest server's link, each in the direction of the bytes. q is the size of the last piece of a push. A shared link
counts as a link. A node that owns a shard and computes has one access link for both.

The saturated step time is a lower bound: workers that start together push together and then wait together. Not modelled
are the time until a staleness bound is reached, and the time for which late pushes of backup workers occupy links.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from services.cluster.links.fluid_link import compute_last_message_bytes
from services.learning.layout import VectorRange
from services.parameter_server.placement import DedicatedPlacement
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.strategies import saturation
from services.strategies.cost_model import CostModel, FlowBytes, StepTimePrediction

SYNCHRONOUS_FORMULA = "{t_c} + 2α + S'·max(β_w, n/s·β_s) + S·max(β_w, n/s·β_s)"
ASYNCHRONOUS_FORMULA = "max({t_c} + 2α + (S'+S)·max(β_w, β_s/s) - (s-1)·q·β_w, n/s·Sβ_s)"


@dataclass(frozen=True)
class ServerStepTimeModel:
    """Formula (closed form) for the step time with parameter servers on one cluster.

    The prediction is for one training phase.
    """

    algorithm: ServerAlgorithm
    exchange_period: int
    cost_model: CostModel

    def predict_step_time(self) -> StepTimePrediction:
        """Return the predicted step time of the training phase."""
        workers = len(self.cost_model.workers)
        computing = self.algorithm.count_gradient_workers(workers)
        if computing < workers:
            dedicated = replace(self.algorithm, placement=DedicatedPlacement(), servers=workers - computing)
            return replace(
                self, algorithm=dedicated, cost_model=_turn_workers_to_servers(self.cost_model, computing)
            ).predict_step_time()
        if self.algorithm.synchroniser.describe_worker_sync().runs_in_rounds:
            return self._predict_synchronous()
        return self._predict_asynchronous()

    def saturating_worker_count(self) -> float:
        """Return the worker count n* above which asynchronous training gets no faster.

        The result is infinite if no shared link limits the workers.
        At n* the step time of a worker that has all links to itself equals the time in
        which the busiest link that all workers use carries the bytes of all workers; the latter is proportional to n.
        For links of B bytes per second, n* = s·(t_c·B/S + 2), and more with latency. If each of the s shards is one
        message, the first shards reply while the last ones are still receiving. A worker alone is then faster, and n* =
        s·(t_c·B/S + 1) + 1.
        """
        cost, flows = self.cost_model, (self._worker_push_flows, self._server_reply_flows)
        alone_s = max(
            _predict_lone_exchange_s(worker, *_flows_of_worker(worker, *flows), cost) for worker in cost.workers
        )
        owners = {target for (_, target), _ in self._worker_push_flows}
        own_links = {(direction, name) for direction in ("up", "down") for name in set(cost.workers) - owners}
        busy_s = cost.busy_s_by_link([*self._worker_push_flows, *self._server_reply_flows])
        shared_s = max((seconds for link, seconds in busy_s.items() if link not in own_links), default=0.0)
        round_s = max(cost.expected_compute_s) * self.exchange_period + alone_s
        return len(cost.workers) * round_s / shared_s if shared_s else inf

    def _predict_synchronous(self) -> StepTimePrediction:
        workers = len(self.cost_model.workers)
        gradients = self.algorithm.gradients_per_update(workers)
        exchange_s = (
            _predict_concurrent_exchange_s(self._worker_push_flows, self._server_reply_flows, self.cost_model)
            / self.exchange_period
        )
        return StepTimePrediction(
            compute_s=self.cost_model.kth_fastest_compute_s(gradients, exchange_s),
            exchange_s=exchange_s,
            formula=self._format_step_time_formula(SYNCHRONOUS_FORMULA),
            counted=gradients / workers,
        )

    def _predict_asynchronous(self) -> StepTimePrediction:
        worker_s = self._step_s_by_worker()
        steps_s = (max(worker_s),) * len(worker_s) if self.algorithm.synchroniser.limits_worker_lead else worker_s
        compute_s = max(self.cost_model.expected_compute_s)
        return StepTimePrediction(
            compute_s=compute_s,
            exchange_s=max(steps_s) - compute_s,
            formula=self._format_step_time_formula(ASYNCHRONOUS_FORMULA),
            steps_s=steps_s,
        )

    def _step_s_by_worker(self) -> tuple[float, ...]:
        """Return the mean step time of each worker over steps with and without an exchange."""
        lone_s, busy_s = [], []
        for compute_s, worker in zip(self.cost_model.expected_compute_s, self.cost_model.workers, strict=True):
            pushes, replies = _flows_of_worker(worker, self._worker_push_flows, self._server_reply_flows)
            lone_s.append(
                self.exchange_period * compute_s + _predict_lone_exchange_s(worker, pushes, replies, self.cost_model)
            )
            busy_s.append(self.cost_model.busy_s_by_link([*pushes, *replies]))
        return tuple(seconds / self.exchange_period for seconds in saturation.contended_step_s(lone_s, busy_s))

    def _format_step_time_formula(self, formula_template: str) -> str:
        """Return the formula of the step time as text.

        The symbols of this training phase are filled in.
        """
        text = formula_template.format(t_c="E[X_(n-b:n)]" if self.algorithm.synchroniser.kind == "backup" else "t_c")
        return text if self.exchange_period == 1 else f"({text.replace('t_c', 'τ·t_c')})/τ"

    @cached_property
    def _worker_push_flows(self) -> list[FlowBytes]:
        """Sender, receiver and bytes of every push in one exchange.

        Pushes of a node to itself are left out.
        """
        return [
            ((worker, owner), self.algorithm.compressor.compressed_size_bytes(shard.size, self.cost_model.dtype))
            for owner, shard in self._pair_owners_with_shards()
            for worker in self.cost_model.workers
            if worker != owner
        ]

    @cached_property
    def _server_reply_flows(self) -> list[FlowBytes]:
        """Sender, receiver and bytes of every reply in one exchange.

        Replies of a node to itself are left out.
        """
        itemsize = np.dtype(self.cost_model.dtype).itemsize
        return [
            ((owner, worker), shard.size * itemsize)
            for owner, shard in self._pair_owners_with_shards()
            for worker in self.cost_model.workers
            if worker != owner
        ]

    def _pair_owners_with_shards(self) -> Iterator[tuple[str, VectorRange]]:
        """Return the owner and the range of each shard of the parameter vector.

        The owner of a shard is given by the name of the node.
        """
        model = self.cost_model
        owners = self.algorithm.shard_owners(model.workers, model.servers)
        return zip(owners, self.algorithm.shard_ranges(len(model.workers), model.entries), strict=True)


def _turn_workers_to_servers(cost_model: CostModel, worker_count_left: int) -> CostModel:
    """Return the cost model with the workers of highest rank turned into servers.

    The other workers compute the whole batch.
    """
    factor = len(cost_model.workers) / worker_count_left
    return cost_model.model_copy(
        update={
            "workers": cost_model.workers[:worker_count_left],
            "servers": cost_model.workers[worker_count_left:],
            "compute_s": max(cost_model.worker_compute_s[:worker_count_left], default=cost_model.compute_s) * factor,
            "worker_compute_s": tuple(seconds * factor for seconds in cost_model.worker_compute_s[:worker_count_left]),
            "variations": cost_model.variations[:worker_count_left],
        }
    )


def _flows_of_worker(
    worker: str, push_flows: Sequence[FlowBytes], reply_flows: Sequence[FlowBytes]
) -> tuple[list[FlowBytes], list[FlowBytes]]:
    """Return the pushes of one worker and the replies to these pushes.

    Each push and each reply has a sender, a receiver and a number of bytes.
    """
    return [load for load in push_flows if load[0][0] == worker], [load for load in reply_flows if load[0][1] == worker]


def _predict_concurrent_exchange_s(
    push_flows: Sequence[FlowBytes], reply_flows: Sequence[FlowBytes], cost_model: CostModel
) -> float:
    """Return the seconds of an exchange in which all pushes begin together.

    The time runs from the begin of the pushes, on idle links, to the last reply.
    """
    latency_s = cost_model.max_latency_s([flow for flow, _ in push_flows]) + cost_model.max_latency_s(
        [flow for flow, _ in reply_flows]
    )
    return latency_s + cost_model.transfer_s(push_flows) + cost_model.transfer_s(reply_flows)


def _predict_lone_exchange_s(
    worker_name: str, push_flows: Sequence[FlowBytes], reply_flows: Sequence[FlowBytes], cost_model: CostModel
) -> float:
    """Return the seconds of one worker's exchange with all shards on links without other load.

    No other worker uses the links. The worker pushes to one shard after the other.

    The first shards reply before the last ones have received everything: pieces of all pushes take turns, so only the
    last piece of each later push comes after the last piece of the first push. Shards owned by workers gain nothing,
    because a worker's uplink sends its own pushes before its replies.
    """
    if len(push_flows) < 2:  # noqa: PLR2004 - there is no other shard
        return _predict_concurrent_exchange_s(push_flows, reply_flows, cost_model)
    busy_s = cost_model.busy_s_by_link(push_flows)
    is_sequential = busy_s["up", worker_name] == max(busy_s.values())
    last_pieces = [
        (flow, compute_last_message_bytes(size, cost_model.vector_bytes))
        for flow, size in push_flows[1:]
        if flow[1] not in cost_model.workers
    ]
    early_s = cost_model.busy_s_by_link(last_pieces).get(("up", worker_name), 0.0) if is_sequential else 0.0
    max_early_s = cost_model.transfer_s(reply_flows) - max(cost_model.transfer_s([load]) for load in reply_flows)
    return _predict_concurrent_exchange_s(push_flows, reply_flows, cost_model) - min(early_s, max_early_s)
