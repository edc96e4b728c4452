"""Base class of synchronisers: when workers wait, how many gradients an update needs, and which are dropped.

A synchroniser keeps no state. The protocol of a server, `services.ps_shard.machine`, calls its methods.
"""

import sys
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from pydantic import Field, PositiveInt

from services.schema.component import FrozenRecord, ScenarioComponent


class StragglerCriterion(FrozenRecord):
    """Criterion for stragglers: workers whose throughput is low compared with all workers.

    The throughput counts compute time only, over a sliding window of steps. It is low if it is below the mean less one
    standard deviation over all workers. Fewer than n/2 of n workers can be stragglers by this criterion; of two workers
    none can. The margin is our addition: without it, one of several equal workers would be below by a tiny amount.
    """

    window: PositiveInt = Field(5, description="steps over which a worker's throughput is measured")
    windows: PositiveInt = Field(3, description="consecutive windows, one step apart, in which a straggler was slow")
    margin: float = Field(0.05, ge=0, lt=1, description="a straggler is slower than the mean by this share")

    def is_slow(self, worker_throughput: float, all_throughputs: Sequence[float]) -> bool:
        """Return whether a worker's throughput is low compared with the throughputs of all workers."""
        mean = fmean(all_throughputs)
        return worker_throughput < min(mean - pstdev(all_throughputs, mean), (1 - self.margin) * mean)


@dataclass(frozen=True)
class WorkerSyncRules:
    """Properties of a synchroniser that stay the same during a training run."""

    # Whether no worker may be a step ahead of the slowest, so that all workers have the same parameters.
    is_synchronous: bool = False
    # Whether all gradients of an update come from the same parameters: a step is a round of all workers.
    runs_in_rounds: bool = False
    # Whether a server replies to a push only after the update that uses its gradient.
    replies_after_update: bool = True
    # Whether only one server is allowed: several see pushes in different orders and could block workers.
    needs_one_server: bool = False
    # Whether every gradient is an update of its own while any worker is a straggler. The change takes effect with the
    # next update from all workers.
    is_asynchronous_with_stragglers: bool = False
    # Criterion by which a worker is a straggler; None for a synchroniser that does not look for stragglers.
    straggler_criterion: StragglerCriterion | None = None


class Synchroniser(ScenarioComponent):
    """Rule by which the workers of a parameter server wait for each other. It has no state."""

    def describe_worker_sync(self) -> WorkerSyncRules:
        """Return the properties of this synchroniser that stay the same during a training run."""
        return WorkerSyncRules()

    @abstractmethod
    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:
        """Return whether a worker may start a step without waiting for slower workers.

        Args:
            step: number of the step, from 0.
            steps_finished_by_slowest: number of steps that the slowest worker has finished.
        """

    @abstractmethod
    def gradients_per_update(self, worker_count: int) -> int:
        """Return how many gradients a server averages in one update if there are `worker_count` workers."""

    def accepts_staleness(self, staleness: int) -> bool:  # noqa: ARG002 - most accept every gradient
        """Return whether an update may use a gradient of this staleness (in updates); otherwise it is dropped."""
        return True

    def count_allowed_extra_steps(
        self,
        steps_ahead_of_slowest: int,  # noqa: ARG002 - most grant no extra steps
        own_step_s: float,  # noqa: ARG002 - see above
        slowest_remaining_s: float,  # noqa: ARG002 - see above
        slowest_worker_step_s: float,  # noqa: ARG002 - see above
    ) -> int:
        """Return how many steps, the next one included, a worker may start instead of waiting for the slowest worker.

        Args:
            steps_ahead_of_slowest: number of the worker's next step, less the number of steps that the slowest worker
                has finished.
            own_step_s: duration of the worker's last step, without waiting.
            slowest_remaining_s: time until the slowest worker finishes its step, if it takes as long as its last one.
            slowest_worker_step_s: duration of the slowest worker's last step.
        """
        return 0

    def explain_bad_worker_count(self, worker_count: int) -> str | None:  # noqa: ARG002 - most take any number of workers
        """Return why this synchroniser can't be used with `worker_count` workers; None if it can."""
        return None

    def gradient_quorum(self, worker_count: int, straggler_count: int) -> int:  # noqa: ARG002 - most ignore stragglers
        """Return how many gradients an update needs while some of the workers are stragglers."""
        return self.gradients_per_update(worker_count)

    def find_always_awaited_ranks(
        self,
        worker_ranks: Collection[int],  # noqa: ARG002 - most require no particular worker
        straggler_ranks: Collection[int],  # noqa: ARG002 - see above
    ) -> frozenset[int]:
        """Return the ranks of workers whose gradients every update must include.

        By default there are none.
        """
        return frozenset()

    @property
    def limits_worker_lead(self) -> bool:
        """Whether a worker that is far ahead must wait, so that on average all are as slow as the slowest worker."""
        return not self.may_start_step(sys.maxsize, 0)
