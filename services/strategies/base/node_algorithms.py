"""Contract of a training phase that the nodes of a trial use."""

from abc import ABC, abstractmethod

from services.learning.optimisers import AnyOptimiser
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.strategies.base.worker_algorithm import WorkerAlgorithm
from services.strategies.base.worker_context import WorkerContext


class NodeAlgorithms(ABC):
    """Contract of a training phase for the nodes: the algorithms of workers and servers, and their optimiser."""

    @abstractmethod
    def create_worker_algorithm(self, worker_context: WorkerContext) -> WorkerAlgorithm:
        """Return the algorithm that a worker runs in this training phase."""

    def server_algorithm(self) -> ServerAlgorithm | None:
        """Return the algorithm that the servers run.

        Return None for a phase without servers.
        """
        return None

    def scale_learning_rate(self, declared_optimiser: AnyOptimiser, worker_count: int) -> AnyOptimiser:  # noqa: ARG002 - see below
        """Return the optimiser with the learning rate of this training phase.

        By default, return the declared optimiser.
        """
        return declared_optimiser
