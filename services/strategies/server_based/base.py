"""Base class of strategies in which workers exchange vectors with servers.

Workers push a vector to the servers, which reply with a vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from sys import maxsize

from pydantic import Field

from services.compressors import Compressor, fit_to_range
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.placement import AnyPlacement, DedicatedPlacement
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.parameter_server.staleness import UNIFORM_WEIGHTING, AnyStalenessWeighting
from services.parameter_server.synchronisers import AnySynchroniser, Bsp
from services.parameter_server.update_rules import UpdateRule
from services.schema.arrays import HostArray
from services.schema.conflicts import KeyConflict
from services.schema.limits import MAX_SERVERS
from services.strategies.base import (
    IDENTITY_COMPRESSOR,
    BytesPerStep,
    ScenarioSizes,
    SinglePhaseStrategy,
    average_bytes_per_step,
)
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.server_based.prediction import ServerStepTimeModel


class ServerBasedStrategy(SinglePhaseStrategy, ABC):
    """Base class of strategies with servers.

    Each server owns one shard (a range) of the parameter vector.
    """

    servers: int = Field(
        default=1,
        ge=1,
        le=MAX_SERVERS,
        description="number of servers; each one owns a shard of the parameters",
    )
    placement: AnyPlacement = Field(default=DedicatedPlacement(), description="nodes that own the shards")
    synchrony: AnySynchroniser = Field(Bsp(), description="synchronisation policy: when a server updates and replies")

    @abstractmethod
    def _make_update_rule(self, updater: ParameterUpdater, params: HostArray, worker_count: int) -> UpdateRule:
        """Return the rule by which a server updates the parameters of its shard."""

    @property
    def _staleness_weighting(self) -> AnyStalenessWeighting:
        """Rule that weights a pushed vector by its staleness.

        Staleness is the number of updates made since the worker read the parameters.
        """
        return UNIFORM_WEIGHTING

    @property
    def _push_compressor(self) -> Compressor:
        """Compressor of pushed vectors."""
        return IDENTITY_COMPRESSOR

    @property
    def _reply_compressor(self) -> Compressor:
        """Compressor of replies."""
        return IDENTITY_COMPRESSOR

    def server_algorithm(self) -> ServerAlgorithm:
        return ServerAlgorithm(
            servers=self.servers,
            placement=self.placement,
            synchroniser=self.synchrony,
            staleness_weighting=self._staleness_weighting,
            compressor=self._push_compressor,
            make_update_rule=self._make_update_rule,
            reply_compressor=self._reply_compressor,
        )

    def explain_recovery_limit(self) -> str:
        if not self.server_algorithm().dedicated_server_count:
            reason = "workers own the shards of the model, so that a lost worker takes a shard with it"
            return f"{reason}; use placement: {{kind: dedicated}}"
        if self._reply_compressor.keeps_state:
            reason = f"compressor {self._reply_compressor.kind} of replies keeps a state for each worker"
            return f"{reason}; use compress_replies: {{kind: identity}}"
        return ""

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if reason := self._explain_key_conflict(scenario_sizes.workers):
            yield KeyConflict((), reason)
        yield from self._find_shard_conflicts(scenario_sizes)
        yield from self._find_update_size_conflicts(scenario_sizes)

    def _explain_key_conflict(self, worker_count: int) -> str | None:
        """Return why the fields of this strategy conflict with each other or the worker count.

        Return None if there is no conflict.
        """
        reasons = (
            self.synchrony.explain_bad_worker_count(worker_count),
            self.placement.node_count_conflict(worker_count, self.servers),
        )
        return next((reason for reason in reasons if reason), self._explain_one_server_limit(worker_count))

    def _explain_one_server_limit(self, worker_count: int) -> str | None:
        """Return why this strategy can't have several servers.

        Return None if it can, or if it has only one server.
        """
        algorithm = self.server_algorithm()
        count = len(algorithm.shard_ranges(worker_count, parameter_count=1))
        drops_stale = not self._staleness_weighting.accepts_staleness(maxsize)
        drops = self.synchrony.describe_worker_sync().is_asynchronous_with_stragglers and drops_stale
        if count == 1 or not (drops or self.synchrony.describe_worker_sync().needs_one_server):
            return None
        policy = f"synchrony {self.synchrony.kind}"
        if drops:
            policy += f" with staleness {self._staleness_weighting.kind}"
        remedy = "servers: 1" if algorithm.dedicated_server_count == count else "placement: {kind: dedicated}"
        return (
            f"{policy} allows only one server (found: {count}): several servers would drop different gradients and "
            f"could block each other's workers for ever; write {remedy}"
        )

    def _find_shard_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield the conflicts between the number of shards and the model or the optimiser."""
        yield from self._find_shard_count_conflicts(scenario_sizes)
        yield from self._find_cut_vector_conflicts(scenario_sizes)

    def _find_cut_vector_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield a conflict if servers update several shards, but an update needs the whole parameter vector."""
        algorithm, need = self.server_algorithm(), scenario_sizes.whole_vector_need
        count = len(algorithm.shard_ranges(scenario_sizes.workers, scenario_sizes.parameter_count))
        if need is None or count == 1 or self.describe_worker_exchange().workers_run_optimiser:
            return
        is_dedicated = algorithm.dedicated_server_count == count
        remedy = "servers: 1" if is_dedicated else "servers: 1 and placement: {kind: dedicated}"
        why = f"{need.reason}, but each of the {count} shards has only a part of the parameter vector"
        key = "servers" if is_dedicated else "placement"
        yield KeyConflict((key,), f"{why}; write {remedy}, or {need.alternative}")

    def _find_shard_count_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield a conflict if the model has too few parameters for the number of shards."""
        algorithm = self.server_algorithm()
        shards = algorithm.shard_ranges(scenario_sizes.workers, scenario_sizes.parameter_count)
        if any(not shard.size for shard in shards):
            owners = "servers" if algorithm.dedicated_server_count == len(shards) else "workers with a shard"
            why = (
                f"the model has {scenario_sizes.parameter_count} parameters, too few for {len(shards)} shards; "
                f"every shard needs at least one parameter; use at most {scenario_sizes.parameter_count} {owners}"
            )
            yield KeyConflict(("servers" if algorithm.dedicated_server_count else "placement",), why)

    def _find_update_size_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield a conflict if an update needs more gradients than all workers send in the whole run."""
        workers = self.server_algorithm().count_gradient_workers(scenario_sizes.workers)
        needed, sent = self.synchrony.gradients_per_update(workers), workers * scenario_sizes.steps
        if needed > sent:
            message = (
                f"an update needs {needed:,} gradients, but {workers:,} workers send at most {sent:,} in "
                f"{scenario_sizes.steps:,} steps; use at most {sent:,} gradients per update"
            )
            yield KeyConflict(("synchrony",), message)

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        algorithm, period = self.server_algorithm(), self.describe_worker_exchange().exchange_period
        nodes = range(worker_count + algorithm.dedicated_server_count)
        pushed, replied = [0] * len(nodes), [0] * len(nodes)
        owners = algorithm.shard_owners(nodes[:worker_count], nodes[worker_count:])
        for owner, shard in zip(owners, algorithm.shard_ranges(worker_count, parameter_count), strict=True):
            push, reply = (
                fit_to_range(compressor, *shard).compressed_size_bytes(shard.size, dtype)
                for compressor in (algorithm.compressor, algorithm.reply_compressor)
            )
            for worker in nodes[: algorithm.count_gradient_workers(worker_count)]:
                if worker != owner:
                    pushed[worker] += push
                    replied[owner] += reply
        total = [average_bytes_per_step(push + reply, period) for push, reply in zip(pushed, replied, strict=True)]
        replies = tuple(average_bytes_per_step(reply, period) for reply in replied[:worker_count])
        return BytesPerStep(workers=tuple(total[:worker_count]), servers=tuple(total[worker_count:]), replies=replies)

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        period = self.describe_worker_exchange().exchange_period
        return ServerStepTimeModel(self.server_algorithm(), period, cost_model).predict_step_time()
