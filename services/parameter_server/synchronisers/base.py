"""Base class of synchronisers, which decide when workers wait.

They also decide how many gradients an update needs, and which gradients are dropped. A synchroniser keeps no state. The
protocol of a server, `services.ps_shard.machine`, calls its methods.
"""

import sys
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from pydantic import Field, PositiveInt

from services.schema.component import FrozenRecord, ScenarioComponent


class StragglerCriterion(FrozenRecord):
    """Criterion by which a worker is a straggler: a low throughput.

    The throughput is compared with the throughputs of all workers. The throughput counts compute time only, over a
    sliding window of steps. It is low if it is below the mean less one standard deviation over all workers. Fewer than
    n/2 of n workers can be stragglers by this criterion; of two workers none can. The margin is our addition: without
    it, one of several equal workers would be below by a tiny amount.
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

    # Whether no worker may be a step ahead of the slowest: all workers do the same number of steps with equal replicas.
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
    """Rule by which the workers of a parameter server wait for each other.

    The rule has no state.
    """

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
        """Return the number of gradients that a server averages in one update.

        `worker_count` is the number of workers.
        """

    def accepts_staleness(self, staleness: int) -> bool:  # noqa: ARG002 - most accept every gradient
        """Return whether an update may use a gradient with a staleness of `staleness` updates.

        Otherwise the gradient is dropped.
        """
        return True

    def count_allowed_extra_steps(
        self,
        steps_ahead_of_slowest: int,  # noqa: ARG002 - most grant no extra steps
        own_step_s: float,  # noqa: ARG002 - see above
        slowest_remaining_s: float,  # noqa: ARG002 - see above
        slowest_worker_step_s: float,  # noqa: ARG002 - see above
    ) -> int:
        """Return how many steps a worker may start before it waits for the slowest worker.

        The next step is included in the number.

        Args:
            steps_ahead_of_slowest: number of the worker's next step, less the number of steps that the slowest worker
                has finished.
            own_step_s: duration of the worker's last step, without waiting.
            slowest_remaining_s: time until the slowest worker finishes its step, if it takes as long as its last one.
            slowest_worker_step_s: duration of the slowest worker's last step.
        """
        return 0

    def for_later_shards(self) -> "Synchroniser":
        """Return the synchroniser that all servers except the first one use.

        It must allow every step that the first server allows, as soon as the same pushes have arrived. Otherwise two
        workers could wait for each other: the first server may delay its reply to one worker until another worker has
        pushed. By default, all servers use the same synchroniser. This is correct for rules that depend only on numbers
        of finished steps.
        """
        return self

    def explain_bad_worker_count(self, worker_count: int) -> str | None:  # noqa: ARG002 - most take any number of workers
        """Return why this synchroniser can't be used with a number of workers.

        The number is `worker_count`. Return None if the synchroniser can be used.
        """
        return None

    def gradient_quorum(self, worker_count: int, straggler_count: int) -> int:  # noqa: ARG002 - most ignore stragglers
        """Return the number of gradients that an update needs while there are stragglers.

        Stragglers are workers that are too slow.
        """
        return self.gradients_per_update(worker_count)

    def find_always_awaited_ranks(
        self,
        worker_ranks: Collection[int],  # noqa: ARG002 - most require no particular worker
        straggler_ranks: Collection[int],  # noqa: ARG002 - see above
    ) -> frozenset[int]:
        """Return the ranks of the workers whose gradients every update must include.

        By default there are no such workers.
        """
        return frozenset()

    @property
    def limits_worker_lead(self) -> bool:
        """Whether a worker that is far ahead of the slowest worker must wait.

        Then all workers are on average as slow as the slowest worker.
        """
        return not self.may_start_step(sys.maxsize, 0)
