"""Update rules, by which a parameter server computes new parameters.

New parameters are computed from the vectors that workers push. Servers and replays of their logs use the same rules.
Vectors are as long as the server's shard and lie in host memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.learning.optimisers import OptimiserState
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.compensation import AnyDelayCompensation, CompensationState
from services.parameter_server.staleness import AnyStalenessWeighting
from services.schema.arrays import HostArray, Vector


class WorkerContribution(NamedTuple):
    """A vector that one worker has pushed, with its number of samples and its staleness."""

    worker: int  # rank
    samples: int
    staleness: int  # updates made since the worker read the parameters
    vector: HostArray
    stale_params: HostArray | None = None  # the parameters that the worker has read; None unless the rule needs them


class UpdateRuleState(NamedTuple):
    """State of an update rule between two updates, for a checkpoint."""

    params: HostArray
    optimiser_state: OptimiserState | None  # None for a rule without an optimiser
    memory: Any  # what the rule keeps in addition; None: nothing


class UpdateRule(ABC):
    """Base class of update rules, by which a server updates its parameters.

    An update rule keeps the parameters and updates them with the vectors that workers push. An update replaces `params`
    by a new array and never changes the array in place: replies may still be sending it.
    """

    params: HostArray
    state: OptimiserState | None  # of the optimiser; None for a rule without an optimiser

    @property
    def needs_stale_params(self) -> bool:
        """Whether the server must keep the parameters from which each worker computes.

        It keeps a copy of the parameters with which each worker computes its gradient.
        """
        return False

    @property
    def memory(self) -> Any:
        """What the rule keeps between updates, in addition to parameters and optimiser state; None: nothing."""
        return None

    def restore_memory(self, memory: Any) -> None:  # noqa: B027 - most rules keep nothing
        """Replace what the rule keeps by the `memory` of another time."""

    def copy_state(self) -> UpdateRuleState:
        """Return the state between two updates, which later updates do not change."""
        return UpdateRuleState(self.params, self.state, self.memory)

    def restore_state(self, rule_state: UpdateRuleState) -> None:
        """Continue from a state that `copy_state` has returned."""
        self.params, self.state = rule_state.params, rule_state.optimiser_state
        self.restore_memory(rule_state.memory)

    @abstractmethod
    def update_shard_params(self, contributions: Sequence[WorkerContribution], samples_before: int) -> None:
        """Update the parameters of the shard with vectors that workers have pushed.

        The vectors come from one or more workers and are in rank order. `samples_before` is the number of samples used
        for the parameters before this update.
        """

    @abstractmethod
    def make_push_reply_vector(self, worker_rank: int) -> HostArray:
        """Return the vector with which the server replies to a worker now.

        The worker has the rank `worker_rank`.
        """


@dataclass
class GradientUpdateRule(UpdateRule):
    """Update rule that makes one optimiser step with the mean of the pushed gradients.

    Before the mean, delay compensation and staleness weights are applied.
    """

    params: HostArray
    updater: ParameterUpdater
    state: OptimiserState
    staleness_weighting: AnyStalenessWeighting
    compensation: AnyDelayCompensation
    # Gradients per update that the learning rate is meant for; an update from fewer uses a part of the rate.
    # None: every update uses the whole rate.
    planned_gradients: int | None = None
    _compensation_state: CompensationState = field(init=False)

    def __post_init__(self) -> None:
        self._compensation_state = self.compensation.init_state(self.params)

    @property
    def needs_stale_params(self) -> bool:
        return self.compensation.needs_stale_params

    @property
    def memory(self) -> CompensationState:
        return self._compensation_state

    def restore_memory(self, memory: CompensationState) -> None:
        self._compensation_state = memory

    def update_shard_params(self, contributions: Sequence[WorkerContribution], samples_before: int) -> None:
        samples = sum(contribution.samples for contribution in contributions)
        if not samples:
            return
        weighted_samples = [item.samples * self.staleness_weighting.weight(item.staleness) for item in contributions]
        shares = [weighted / sum(weighted_samples) for weighted in weighted_samples]
        gradient = weighted_sum([self._compensate_staleness(contribution) for contribution in contributions], shares)
        rate_factor = sum(weighted_samples) / samples * self._compute_lr_scale(len(contributions))
        self.params, self.state = self.updater.update_params(
            self.params, gradient, self.state, samples_before, rate_factor
        )

    def make_push_reply_vector(self, worker_rank: int) -> HostArray:  # noqa: ARG002 - all workers receive the same parameters
        return self.params

    def _compensate_staleness(self, worker_contribution: WorkerContribution) -> HostArray:
        """Return a worker's gradient after delay compensation.

        The next state of the compensation is kept.
        """
        vector, read_params = worker_contribution.vector, worker_contribution.stale_params
        compensated, self._compensation_state = self.compensation.compensate(
            vector, self.params, read_params, self._compensation_state
        )
        gradient: HostArray = compensated
        return gradient

    def _compute_lr_scale(self, gradients_in_update: int) -> float:
        """Return the factor on the learning rate of an update.

        The factor is the share of the learning rate that applies to an update from `gradients_in_update` gradients.
        """
        return 1.0 if self.planned_gradients is None else gradients_in_update / self.planned_gradients


@dataclass
class ElasticAveragingRule(UpdateRule):
    """Elastic averaging: the server's parameters move towards each worker's parameters.

    The server's parameters c move by α(x - c) towards a worker's parameters x. α: moving rate. The reply to a worker is
    the centre (the server's parameters) from which the difference was taken. The worker moves its parameters by the
    same amount.
    """

    params: HostArray
    moving_rate: float  # α
    state: OptimiserState | None = None
    _previous_centre: dict[int, HostArray] = field(default_factory=dict)  # before the last move, by worker

    @property
    def memory(self) -> dict[int, HostArray]:
        return self._previous_centre.copy()

    def restore_memory(self, memory: dict[int, HostArray]) -> None:
        self._previous_centre = memory.copy()

    def update_shard_params(self, contributions: Sequence[WorkerContribution], samples_before: int) -> None:  # noqa: ARG002 - the move has no learning rate
        centre = self.params
        for contribution in contributions:
            self._previous_centre[contribution.worker] = centre
            self.params = self.params + elastic_averaging_move(self.moving_rate, contribution.vector, centre)

    def make_push_reply_vector(self, worker_rank: int) -> HostArray:
        return self._previous_centre[worker_rank]


def elastic_averaging_move(moving_rate: float, params: Vector, centre_params: Vector) -> Vector:
    """Return the vector by which the parameters of worker and server approach each other.

    The vector is α·(x - c), for parameters x of a worker and c of the server. α: `moving_rate`. Worker and server
    compute the same bits.
    """
    return moving_rate * (params - centre_params)


def weighted_sum(vectors: Sequence[HostArray], weights: Sequence[float]) -> HostArray:
    """Return the weighted sum of vectors.

    The vectors have the shape (n,) and are added in the given order.
    """
    total: HostArray = vectors[0] * vectors[0].dtype.type(weights[0])
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total += vector * vector.dtype.type(weight)
    return total
