"""Formula (closed form) for the step time of strategies with servers.

The push and the reply of a shard do not overlap: a server replies when it has received the whole shard.

Synchronous: all workers use the links of the servers at the same time. A step ends when as many workers have computed
as an update needs: the order statistic E[X_(k:n)] if speeds vary. Workers for which the previous step did not wait
start late (`ComputeTimes.mean_kth_fastest_s`).

Asynchronous: a worker has the links to itself until they are saturated, and each worker has its own step time
(`saturation`). s servers accept at most s/(S'β_s) vectors per second and send as many replies. With a bound on
staleness, all workers are as fast as the slowest.

Symbols: t_c is the compute time of a step, α the latency, n the number of workers, s that of servers. S is the size in
bytes of the vector, or of a compressed reply, and S' that of a compressed push. β_w is the seconds per byte of the
slowest worker's link, β_s that of the slowest server's link, each in the direction of the bytes. q is the size of the
last piece of a push. A shared link counts as a link. A node that owns a shard and computes has one access link for
both.

The saturated step time is a lower bound: workers that start together push together and then wait together. Not modelled
are the time until a staleness bound is reached, and the time for which late pushes of backup workers occupy links.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from services.parameter_server.placement import DedicatedPlacement
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.strategies.cost_model import (
    EARLY_EXCHANGE_REASON,
    MAX_NEGLECTED_SHARE,
    CostModel,
    StepTimePrediction,
)
from services.strategies.server_based import saturation
from services.strategies.server_based.exchange_flows import ServerExchange

SYNCHRONOUS_FORMULA = "{t_c} + 2α + S'·max(β_w, n/s·β_s) + S·max(β_w, n/s·β_s)"
EARLY_PUSHES_TEXT = ", less the pushes of early workers"
ASYNCHRONOUS_FORMULA = "max({t_c} + 2α + (S'+S)·max(β_w, β_s/s) - (s-1)·q·β_w, n/s·Sβ_s)"

MAX_UNQUEUED_UTILISATION = 0.3  # of a step: messages seldom queue on a shared link that is busy for a smaller part


@dataclass(frozen=True)
class ServerStepTimeModel:
    """Formula (closed form) for the step time with parameter servers on one cluster.

    The prediction is for one training phase.
    """

    algorithm: ServerAlgorithm
    exchange_period: int
    cost_model: CostModel

    @cached_property
    def _exchange(self) -> ServerExchange:
        return ServerExchange(self.algorithm, self.cost_model)

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
        cost, exchange = self.cost_model, self._exchange
        alone_s = max(exchange.predict_lone_s(worker) for worker in cost.workers)
        shared_s = exchange.busiest_shared_link_s
        round_s = max(cost.compute_times.mean_s_by_worker) * self.exchange_period + alone_s
        return len(cost.workers) * round_s / shared_s if shared_s else inf

    def _predict_synchronous(self) -> StepTimePrediction:
        workers, times = len(self.cost_model.workers), self.cost_model.compute_times
        gradients = self.algorithm.gradients_per_update(workers)
        exchange_s = self._exchange.predict_concurrent_s() / self.exchange_period
        if gradients < workers:
            compute_s, early_s, delay_s = times.mean_kth_fastest_s(gradients, exchange_s), 0.0, 0.0
        else:
            compute_s = times.mean_slowest_s(self.exchange_period)
            early_s = self._seconds_of_early_pushes(compute_s, exchange_s, self._head_start_s)
            common_start_early_s = self._seconds_of_early_pushes(compute_s, exchange_s, head_start_s=0.0)
            delay_s = (early_s - common_start_early_s) * self.exchange_period
        return StepTimePrediction(
            compute_s=compute_s,
            exchange_s=max(0.0, exchange_s - early_s),
            epoch_start_delay_s=delay_s,
            formula=self._format_step_time_formula(SYNCHRONOUS_FORMULA) + EARLY_PUSHES_TEXT * bool(early_s),
            counted=gradients / workers,
            inapplicable_reason=self._explain_inapplicable_synchronous_form(compute_s, exchange_s),
        )

    def _seconds_of_early_pushes(self, compute_s: float, exchange_s: float, head_start_s: float) -> float:
        """Return the seconds per step by which pushes shorten a step because they do not begin together.

        A dedicated server's link carries the pushes of early workers while others compute. 0 if another link is the
        busiest, or if this is a negligible part of the step.

        Args:
            compute_s: predicted compute time of a step.
            exchange_s: predicted exchange time of a step in which all pushes begin together.
            head_start_s: seconds by which a worker starts before the next one; 0 in the first step after an evaluation.
        """
        cost, workers = self.cost_model, len(self.cost_model.workers)
        push_link, push_s = self._exchange.busiest_link(self._exchange.push_flows)
        if push_link[1] not in cost.servers:
            return 0.0
        end_s = cost.compute_times.mean_end_of_pushes_s(push_s / workers, head_start_s, self.exchange_period)
        early_s = compute_s + (push_s - end_s) / self.exchange_period
        return early_s if early_s > MAX_NEGLECTED_SHARE * (compute_s + exchange_s) / 2 else 0.0

    @property
    def _head_start_s(self) -> float:
        """Seconds by which a worker starts a step before the next one.

        A single server sends the last messages of its replies one after another.
        """
        return self._seconds_between_replies if len(self.cost_model.servers) == 1 else 0.0

    @property
    def _workers_have_unequal_speeds(self) -> bool:
        """Whether the mean compute times of workers differ by more than a closed form may neglect."""
        means_s = self.cost_model.compute_times.mean_s_by_worker
        return max(means_s) - min(means_s) > MAX_NEGLECTED_SHARE * max(means_s)

    @property
    def _seconds_between_replies(self) -> float:
        """Seconds between the ends of two replies of a server; 0 if a server's link is not the busiest."""
        (_, link_name), _ = self._exchange.busiest_link(self._exchange.reply_flows)
        if link_name not in self.cost_model.servers:
            return 0.0
        shard_bytes = max(size for _, size in self._exchange.reply_flows)
        return self.cost_model.last_message_bytes(shard_bytes) * self.cost_model.uplink_s_per_byte[str(link_name)]

    @property
    def _message_s(self) -> float:
        """Seconds for which one message of a reply occupies the slowest uplink of a node that owns a shard."""
        message_bytes = self.cost_model.fluid_message_bytes
        return max(
            (
                min(size, message_bytes) * self.cost_model.uplink_s_per_byte[owner]
                for (owner, _), size in self._exchange.reply_flows
            ),
            default=0.0,
        )

    def _explain_inapplicable_synchronous_form(self, compute_s: float, exchange_s: float) -> str:
        """Return why the form of synchronous training does not describe this cluster.

        Return an empty text if it does.
        """
        workers, spread_s = self.cost_model.workers, self.cost_model.compute_times.mean_spread_s(self.exchange_period)
        seeks_stragglers = self.algorithm.synchroniser.describe_worker_sync().straggler_criterion is not None
        is_uneven = spread_s > MAX_NEGLECTED_SHARE * compute_s or self.cost_model.has_unequal_links
        if seeks_stragglers and is_uneven:
            return "which workers are stragglers is known only during the run"
        waits_for_all = self.algorithm.gradients_per_update(len(workers)) == len(workers)
        if not waits_for_all and exchange_s > MAX_NEGLECTED_SHARE * (compute_s + exchange_s):
            return "late pushes, for which no update waits, delay other transfers"
        if not waits_for_all and self._workers_have_unequal_speeds:
            return "slow workers skip steps"
        if waits_for_all and self._seconds_of_early_pushes(compute_s, exchange_s, self._head_start_s) > exchange_s:
            return EARLY_EXCHANGE_REASON
        return self._explain_early_pushes(spread_s, compute_s + exchange_s, exchange_s)

    def _explain_early_pushes(self, spread_s: float, step_s: float, exchange_s: float) -> str:
        """Return why early pushes have an effect that the form does not contain; empty if they have none.

        The form contains pushes over the link of one dedicated server.
        """
        exchange, workers = self._exchange, self.cost_model.workers
        has_shared_links = bool(self.cost_model.network.shared_links)
        push_link, reply_link = (
            exchange.busiest_link(flows)[0][1] for flows in (exchange.push_flows, exchange.reply_flows)
        )
        has_other_path = len(self.cost_model.servers) > 1 or has_shared_links
        may_overtake = has_other_path or not {push_link, reply_link} <= set(workers)
        if self.cost_model.has_unequal_rates and may_overtake and exchange_s > MAX_NEGLECTED_SHARE * step_s:
            return "workers with faster links use the links of the servers before the others"
        between_replies_s = self._message_s if reply_link in workers else self._seconds_between_replies
        head_starts_s = (len(workers) - 1) * between_replies_s / self.exchange_period
        if has_other_path and head_starts_s > MAX_NEGLECTED_SHARE * step_s:
            return "replies of servers end one after another, so workers do not start a step together"
        owners = exchange.shard_owners
        is_shared = has_other_path or (push_link in owners and push_link in workers)
        if is_shared and min(spread_s, exchange_s) > MAX_NEGLECTED_SHARE * step_s:
            return EARLY_EXCHANGE_REASON
        return ""

    def _predict_asynchronous(self) -> StepTimePrediction:
        worker_s = self._step_s_by_worker()
        steps_s = (max(worker_s),) * len(worker_s) if self.algorithm.synchroniser.limits_worker_lead else worker_s
        compute_s = max(self.cost_model.compute_times.mean_s_by_worker)
        return StepTimePrediction(
            compute_s=compute_s,
            exchange_s=max(steps_s) - compute_s,
            formula=self._format_step_time_formula(ASYNCHRONOUS_FORMULA),
            steps_s=steps_s,
            inapplicable_reason=self._explain_inapplicable_asynchronous_form(max(steps_s)),
        )

    def _explain_inapplicable_asynchronous_form(self, step_s: float) -> str:
        """Return why the form of asynchronous training does not describe this cluster.

        Return an empty text if it does.
        """
        times, max_deviation_s = self.cost_model.compute_times, MAX_NEGLECTED_SHARE * step_s
        is_uneven = times.mean_spread_s() > max_deviation_s
        if is_uneven and self.algorithm.synchroniser.limits_worker_lead:
            return "how often a fast worker waits for the slowest is known only during the run"
        shared_s = self._exchange.busiest_shared_link_s / self.exchange_period
        cost, owners = self.cost_model, self._exchange.shard_owners
        has_one_server = len(owners) == 1 and not set(owners) & set(cost.workers)
        is_even = not (is_uneven or cost.has_unequal_links) and has_one_server and self.exchange_period == 1
        is_unequal = cost.has_unequal_rates or bool(cost.network.shared_links)
        is_queued = not is_even and shared_s > MAX_UNQUEUED_UTILISATION * step_s
        if is_queued or (shared_s > max_deviation_s and (is_unequal or self.exchange_period > 1)):
            return "messages of workers of unequal speed queue on links of the servers"
        return ""

    def _step_s_by_worker(self) -> tuple[float, ...]:
        """Return the mean step time of each worker over steps with and without an exchange."""
        lone_s, busy_s = [], []
        compute_times_s = self.cost_model.compute_times.mean_s_by_worker
        for compute_s, worker in zip(compute_times_s, self.cost_model.workers, strict=True):
            lone_s.append(self.exchange_period * compute_s + self._exchange.predict_lone_s(worker))
            busy_s.append(self._exchange.worker_busy_s_by_link(worker))
        return tuple(seconds / self.exchange_period for seconds in saturation.contended_step_s(lone_s, busy_s))

    def _format_step_time_formula(self, formula_template: str) -> str:
        """Return the formula of the step time as text.

        The symbols of this training phase are filled in.
        """
        text = formula_template.format(t_c="E[X_(n-b:n)]" if self.algorithm.synchroniser.kind == "backup" else "t_c")
        return text if self.exchange_period == 1 else f"({text.replace('t_c', 'τ·t_c')})/τ"


def _turn_workers_to_servers(cost_model: CostModel, worker_count_left: int) -> CostModel:
    """Return the cost model with the workers of highest rank turned into servers.

    The compute times of the other workers are those of the whole batch.
    """
    return cost_model.model_copy(
        update={
            "workers": cost_model.workers[:worker_count_left],
            "servers": cost_model.workers[worker_count_left:],
            "step_compute_times": cost_model.compute_times.of_first_workers(worker_count_left),
        }
    )
