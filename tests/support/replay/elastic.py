"""Replay of elastic averaging: workers train their own parameters and exchange them with the centre.

The parameters of a worker after an exchange depend on the centre of every shard; the order of arrival determines it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from replay.base import Row, ShardArrivals, gradient, push_id, rows_by_version
from services.learning.datasets import TrainTestData
from services.learning.layout import VectorRange
from services.learning.optimisers import OptimiserState
from services.parameter_server.update_rules import ElasticAveragingRule, WorkerContribution, elastic_averaging_move
from services.plan import Plan
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError
from services.strategies import Easgd


@dataclass
class _ReplayedWorker:
    """State of one worker between two exchanges; it pushes `params` at the next one."""

    params: HostArray
    moments: OptimiserState  # of the worker's own optimiser
    end: int  # the step after its last one
    steps: int = 0  # done
    exchanges: int = 0
    samples: int = 0  # in the centre at the last exchange, and in the global batches since then
    centre: dict[int, HostArray] = field(default_factory=dict)  # by shard: replies of the exchange in progress


def replay(
    plan: Plan,
    strategy: Easgd,
    data: TrainTestData,
    arrivals: Sequence[ShardArrivals],
    end_steps: Sequence[int],
    params: HostArray,
) -> HostArray:
    """Return the final centre; `end_steps` has the number of steps of each worker, by rank.

    Raises:
        ProtocolError: the logs contradict themselves.
    """
    return _ElasticReplay.of(plan, strategy, data, arrivals, end_steps, params).run()


@dataclass
class _ElasticReplay:
    plan: Plan
    strategy: Easgd
    data: TrainTestData
    workers: list[_ReplayedWorker]
    rules: list[ElasticAveragingRule]  # by shard
    updates: list[list[list[Row]]]  # by shard: rows of each update that is not replayed yet
    samples: list[int]  # by shard: used for the centre

    @classmethod
    def of(
        cls,
        plan: Plan,
        strategy: Easgd,
        data: TrainTestData,
        arrivals: Sequence[ShardArrivals],
        end_steps: Sequence[int],
        params: HostArray,
    ) -> "_ElasticReplay":
        workers = [_ReplayedWorker(params, plan.optimiser.init_state(params), end) for end in end_steps]
        updater, algorithm = plan.make_parameter_updater(plan.optimiser), strategy.server_algorithm()
        rules = [
            algorithm.make_update_rule(updater, shard_range.view(params), plan.workers) for shard_range in plan.shards
        ]
        updates = [rows_by_version(shard.updates) for shard in arrivals]
        new_replay = cls(plan, strategy, data, workers, rules, updates, [0] * len(rules))
        for rank in range(plan.workers):
            new_replay._train_locally(rank)
        return new_replay

    def run(self) -> HostArray:
        while any(self.updates):
            ready = [shard for shard, updates in enumerate(self.updates) if updates and self._is_ready(shard)]
            if not ready:
                raise ProtocolError("the logs name meetings that can't have come yet")
            for shard in ready:
                self._update(shard)
        return np.concatenate([rule.params for rule in self.rules])

    def _train_locally(self, rank: int) -> None:
        """Do the local steps up to the next exchange; the last exchange may come early."""
        worker, updater = self.workers[rank], self.plan.make_parameter_updater(self.plan.optimiser)
        for step in range(worker.steps, min((worker.exchanges + 1) * self.strategy.period, worker.end)):
            mean, _ = gradient(self.plan, self.data, worker.params, rank, step)
            worker.params, worker.moments = updater.update_params(worker.params, mean, worker.moments, worker.samples)
            worker.steps += 1
            worker.samples += self.plan.data_order.batch_size(step)

    def _is_ready(self, shard: int) -> bool:
        """Return whether all workers of the shard's next update have reached that exchange."""
        pushes = map(push_id, self.updates[shard][0])
        return all(self.workers[rank].exchanges == number for rank, number in pushes)

    def _update(self, shard: int) -> None:
        rule, shard_range, rows = self.rules[shard], self.plan.shards[shard], self.updates[shard].pop(0)
        rule.update_shard_params([self._contribution(row, shard_range) for row in rows], self.samples[shard])
        self.samples[shard] += sum(row["samples"] for row in rows)
        for rank, _ in map(push_id, rows):
            worker = self.workers[rank]
            worker.centre[shard] = rule.make_push_reply_vector(rank)
            if shard == 0:  # the first shard counts for the schedule of the learning rate
                worker.samples = self.samples[0]
            if len(worker.centre) == len(self.rules):
                self._finish_exchange(rank)

    def _contribution(self, row: Row, shard_range: VectorRange) -> WorkerContribution:
        vector = shard_range.view(self.workers[row["worker"]].params)
        return WorkerContribution(row["worker"], row["samples"], row["staleness"], vector)

    def _finish_exchange(self, rank: int) -> None:
        """Move the worker towards the centre after the replies of all shards, and continue its training."""
        worker = self.workers[rank]
        centre = np.concatenate([worker.centre[shard] for shard in range(len(self.rules))])
        worker.params = worker.params - elastic_averaging_move(self.rules[0].moving_rate, worker.params, centre)
        worker.centre = {}
        worker.exchanges += 1
        self._train_locally(rank)
