"""Contract of the algorithm that a worker runs in a training phase."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import HostArray, Vector
from services.strategies.base.worker_context import Gradient, StepResult, WorkerContext, WorkerState
from services.strategies.overlap import BucketReduction


@dataclass(frozen=True)
class WorkerAlgorithm(ABC):
    """Base class of the algorithm that a worker runs in a training phase.

    The training loop of the worker calls it, and keeps its state.
    """

    context: WorkerContext

    @property
    def receiver_names(self) -> tuple[str, ...]:
        """Names of the nodes to which this worker sends gradients or parameters."""
        ranks = self.context.schedule.target_ranks(self.context.rank)
        return tuple(self.context.workers[rank] for rank in sorted(ranks))

    @property
    def sends_gradients_from_host(self) -> bool:
        """Whether this algorithm needs whole gradients in host memory, where it sends them.

        They are then copied from the device while the backward pass runs.
        """
        return False

    @abstractmethod
    def initial_state(self, params: Vector) -> WorkerState:
        """Return the state of this algorithm before the first step."""

    def state_after_switch(self, params: Vector, update_count: int, optimiser_state: OptimiserState) -> WorkerState:  # noqa: ARG002 - see below
        """Return the state of this algorithm right after a strategy switch.

        By default, return the initial state.

        Args:
            params: the parameters, on the device.
            update_count: number of updates that have been made to the parameters.
            optimiser_state: state of the optimiser at the start of this phase; servers have their own.
        """
        return self.initial_state(params)

    def worker_optimiser_state(self, worker_state: WorkerState) -> OptimiserState | None:  # noqa: ARG002 - most leave it to servers
        """Return the optimiser's state if every worker has a complete copy of it.

        Return None if servers own the state.
        """
        return None

    def begin_step(self, step: int, params: Vector, worker_state: WorkerState) -> WorkerState:  # noqa: ARG002 - most exchange after the compute
        """Start the exchange that overlaps with the compute of a step, and return the state with this exchange.

        By default, start nothing, and return the state unchanged.
        """
        return worker_state

    async def cancel_exchange(self, worker_state: WorkerState) -> None:  # noqa: B027 - most start nothing before
        """Cancel the exchange that `begin_step` has started, because the step is broken off.

        By default, there is none.

        Args:
            worker_state: the state that `begin_step` has returned.
        """

    def start_gradient_reduction(
        self,
        step: int,  # noqa: ARG002 - most algorithms exchange after the backward pass
        vector: HostArray,  # noqa: ARG002
        sample_count: int,  # noqa: ARG002
        step_timer: StepTimer,  # noqa: ARG002
    ) -> BucketReduction | None:
        """Begin to sum the gradient of a step over all workers, before the backward pass begins.

        Return None if this algorithm exchanges nothing during the backward pass.

        Args:
            step: number of the step.
            vector: receives the gradient over this worker's samples, in host memory.
            sample_count: samples of this worker in the step.
            step_timer: timer of the step.
        """
        return None

    @abstractmethod
    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: WorkerState, step_timer: StepTimer
    ) -> StepResult:
        """Exchange the gradient or the parameters with other nodes, and return the updated parameters.

        The durations of the step phases exchange, wait and update are added to `step_timer`.
        """

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:  # noqa: ARG002 - most have exchanged everything
        """Take part in training for the last time, and return the parameters of this worker afterwards.

        The worker exchanges the results of all steps since its last exchange, and informs the nodes that would
        otherwise wait for its messages from `leave_step` on. By default, it sends nothing.

        Args:
            leave_step: first step in which this worker does not take part.
            step_result: result of the worker's last step.
            step_timer: timer of the exchange, which belongs to no step.
        """
        return step_result.params
