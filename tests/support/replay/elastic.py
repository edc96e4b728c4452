"""Replays elastic averaging: workers that train parameters of their own, and the centre that they meet.

A worker's parameters after a meeting depend on the centre that every shard had then; the order of arrival says which.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from replay.base import Arrivals, Row, by_version, gradient, name
from services.learning.datasets import TrainTestData
from services.learning.layout import VectorRange
from services.learning.optimisers import OptimiserState
from services.parameter_server.update_rules import ElasticAveragingRule, WorkerContribution, elastic_averaging_move
from services.plan import Plan
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError
from services.strategies import Easgd


@dataclass
class _Worker:
    """One worker between two meetings: it comes to the next with the parameters `params`."""

    params: HostArray
    moments: OptimiserState  # of its own optimiser
    end: int  # the step after its last
    steps: int = 0  # done
    meetings: int = 0
    centre: dict[int, HostArray] = field(default_factory=dict)  # by shard: the one that it finds, as far as it is known


def replay(
    plan: Plan,
    strategy: Easgd,
    data: TrainTestData,
    arrivals: Sequence[Arrivals],
    ends: Sequence[int],
    params: HostArray,
) -> HostArray:
    """The centre at the end; `ends` has how many steps each worker did, by rank.

    Raises:
        ProtocolError: the logs contradict themselves.
    """
    return _Replay.of(plan, strategy, data, arrivals, ends, params).run()


@dataclass
class _Replay:
    plan: Plan
    strategy: Easgd
    data: TrainTestData
    workers: list[_Worker]
    rules: list[ElasticAveragingRule]  # by shard
    updates: list[list[list[Row]]]  # by shard: those to come

    @classmethod
    def of(
        cls,
        plan: Plan,
        strategy: Easgd,
        data: TrainTestData,
        arrivals: Sequence[Arrivals],
        ends: Sequence[int],
        params: HostArray,
    ) -> "_Replay":
        workers = [_Worker(params, plan.optimiser.init_state(params), end) for end in ends]
        rules = [
            strategy.server_algorithm().make_update_rule(plan.optimiser, held.view(params), plan.workers)
            for held in plan.shards
        ]
        replayed = cls(plan, strategy, data, workers, rules, [by_version(told.updates) for told in arrivals])
        for rank in range(plan.workers):
            replayed._trains(rank)
        return replayed

    def run(self) -> HostArray:
        while any(self.updates):
            ready = [shard for shard, updates in enumerate(self.updates) if updates and self._is_ready(shard)]
            if not ready:
                raise ProtocolError("the logs name meetings that can't have come yet")
            for shard in ready:
                self._update(shard)
        return np.concatenate([rule.params for rule in self.rules])

    def _trains(self, rank: int) -> None:
        """The local steps up to the next meeting; the last one may come early."""
        worker = self.workers[rank]
        for step in range(worker.steps, min((worker.meetings + 1) * self.strategy.period, worker.end)):
            mean, _ = gradient(self.plan, self.data, worker.params, rank, step)
            worker.params, worker.moments = self.plan.optimiser.update_params(worker.params, mean, worker.moments)
            worker.steps += 1

    def _is_ready(self, shard: int) -> bool:
        """Whether everybody has come to the meeting of its next update, and has not met this shard there."""
        pushes = map(name, self.updates[shard][0])
        return all(self.workers[rank].meetings == number for rank, number in pushes)

    def _update(self, shard: int) -> None:
        rule, held, rows = self.rules[shard], self.plan.shards[shard], self.updates[shard].pop(0)
        rule.update([self._contribution(row, held) for row in rows])
        for rank, _ in map(name, rows):
            worker = self.workers[rank]
            worker.centre[shard] = rule.reply_vector(rank)
            if len(worker.centre) == len(self.rules):
                self._met(rank)

    def _contribution(self, row: Row, held: VectorRange) -> WorkerContribution:
        vector = held.view(self.workers[row["worker"]].params)
        return WorkerContribution(row["worker"], row["samples"], row["staleness"], vector)

    def _met(self, rank: int) -> None:
        """All shards have answered: the worker moves, too, and goes on."""
        worker = self.workers[rank]
        centre = np.concatenate([worker.centre[shard] for shard in range(len(self.rules))])
        worker.params = worker.params - elastic_averaging_move(self.rules[0].moving_rate, worker.params, centre)
        worker.centre = {}
        worker.meetings += 1
        self._trains(rank)
