"""Strategies with servers: workers push a vector to the shard owners and receive a vector of the same length back."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from sys import maxsize

import numpy as np
from pydantic import Field

from services.learning.optimisers import AnyOptimiser
from services.parameter_server.placement import AnyPlacement, Dedicated
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.parameter_server.staleness import UNWEIGHTED, AnyStaleness
from services.parameter_server.synchronisers import AnySynchroniser, Bsp
from services.parameter_server.update_rules import UpdateRule
from services.schema.arrays import HostArray
from services.schema.conflicts import Conflict
from services.strategies.base import BytesPerStep, PhaseStrategy, StrategyContext, per_step
from services.strategies.cost_model import CostModel, StepPrediction
from services.strategies.served_prediction import ServedPrediction


class ServedStrategy(PhaseStrategy, ABC):
    """A training phase with servers, each of which owns one shard of the parameter vector."""

    servers: int = Field(default=1, ge=1, description="number of nodes that own a shard of the parameters")
    placement: AnyPlacement = Field(default=Dedicated(), description="which nodes own the shards")
    synchrony: AnySynchroniser = Field(default=Bsp(), description="when a server updates and replies")

    @abstractmethod
    def _make_update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> UpdateRule:
        """Return how a server updates the parameters of its shard."""

    @property
    def _gradient_weight(self) -> AnyStaleness:
        """The weight of a pushed vector by its staleness."""
        return UNWEIGHTED

    def server_algorithm(self) -> ServerAlgorithm:
        return ServerAlgorithm(
            servers=self.servers,
            placement=self.placement,
            synchroniser=self.synchrony,
            staleness=self._gradient_weight,
            compressor=self.traits().compressor,
            make_update_rule=self._make_update_rule,
        )

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        if reason := self.contradiction(context.workers):
            yield Conflict((), reason)
        yield from self.shard_conflicts(context)

    def contradiction(self, workers: int) -> str | None:
        """Return the first reason why these parts do not fit together or do not fit `workers` workers."""
        reasons = (self.synchrony.refusal(workers), self.placement.refusal(workers, self.servers))
        return next((reason for reason in reasons if reason), self.several_servers_contradiction(workers))

    def several_servers_contradiction(self, workers: int) -> str | None:
        """Return why this strategy allows only one server; servers see pushes arrive in different orders."""
        count, name = len(self.server_algorithm().shards(workers, entries=1)), f"synchrony {self.synchrony.kind}"
        drops = self.synchrony.comes_apart and not self._gradient_weight.takes(maxsize)
        if count == 1 or not (drops or self.synchrony.needs_one_server):
            return None
        return (
            f"{name}{f' with staleness {self._gradient_weight.kind}' if drops else ''} allows one server: of {count} "
            "servers, each would drop different gradients, and two could block each other's workers for ever"
        )

    def shard_conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        """Yield a conflict when a shard would be empty."""
        algorithm = self.server_algorithm()
        if any(not shard.size for shard in algorithm.shards(context.workers, context.entries)):
            why = f"the model has {context.entries} parameters; each server owns at least one"
            yield Conflict(("servers" if algorithm.server_count else "placement",), why)

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> BytesPerStep:
        algorithm, period = self.server_algorithm(), self.traits().exchange_period
        nodes = range(workers + algorithm.server_count)
        pushed, replied = [0] * len(nodes), [0] * len(nodes)
        owners = algorithm.shard_owners(nodes[:workers], nodes[workers:])
        for owner, shard in zip(owners, algorithm.shards(workers, entries), strict=True):
            for worker in nodes[: algorithm.computing_workers(workers)]:
                if worker != owner:
                    pushed[worker] += algorithm.compressor.nbytes(shard.size, dtype)
                    replied[owner] += shard.size * np.dtype(dtype).itemsize
        total = [per_step(push + reply, period) for push, reply in zip(pushed, replied, strict=True)]
        replies = tuple(per_step(reply, period) for reply in replied[:workers])
        return BytesPerStep(workers=tuple(total[:workers]), servers=tuple(total[workers:]), replies=replies)

    def predict(self, cost: CostModel) -> StepPrediction:
        return ServedPrediction(self.server_algorithm(), self.traits().exchange_period, cost).step()
