"""Contracts of a strategy, one per caller: the scenario and the planner, the worker, and the server.

A strategy is a component that a scenario declares. It has one training phase, or two with a switch between them. Each
phase knows what it needs (servers), what it sends (bytes per node and step) and how long a step should take (a closed
form), all before a run starts. What a worker runs is a `WorkerAlgorithm`, written once as coroutines over the seams
Transport and Clock; what a server runs is a `ServerAlgorithm`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from services.collectives.base import CollectiveSite, Schedule
from services.compressors import Compressor, Identity
from services.learning.layout import VectorRange
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.runtime.device import Device
from services.runtime.run_log import StepTimes
from services.runtime.transport import Transport
from services.schema.arrays import Vector
from services.schema.component import Component
from services.schema.conflicts import Conflict
from services.strategies.cost_model import CostModel, StepPrediction

if TYPE_CHECKING:
    from services.strategies.switching.switch import Switch

State: TypeAlias = Any  # what a worker algorithm keeps between steps
IDENTITY = Identity()


@dataclass(frozen=True)
class StrategyContext:
    """The part of a scenario that a strategy can conflict with."""

    workers: int
    steps: int  # of the whole budget
    steps_per_epoch: int
    array_sizes: tuple[int, ...]  # entries of each array of the model
    has_link_rates: bool  # whether any link has a declared rate

    @property
    def entries(self) -> int:
        """Entries of the parameter vector."""
        return sum(self.array_sizes)


@dataclass(frozen=True)
class Gradient:
    """The mean gradient over a worker's share of the batch."""

    mean: Vector  # shape (n,)
    samples: int  # in the share; 0 is possible in the last batch of an epoch


@dataclass(frozen=True)
class WorkerContext:
    """What a worker algorithm may use of the worker that runs it."""

    rank: int
    workers: Sequence[str]  # node names by rank
    shard_owners: Sequence[str]  # names of the nodes that own a shard, by shard; a worker may be one of them
    shards: Sequence[VectorRange]  # of the parameter vector
    schedule: Schedule  # of the collective
    optimiser: AnyOptimiser
    device: Device
    transport: Transport
    batch_size: Callable[[int], int]  # samples of all workers in a step


@dataclass(frozen=True)
class StepResult:
    """The parameters after a step, and what is known about them."""

    params: Vector
    state: State
    staleness: float | None = None  # updates by other workers between reading the parameters and updating them
    samples: int = 0  # in the parameters so far, of all workers; 0: not known here
    pending_samples: int | None = None  # of other workers, not in the parameters yet; None: not known here
    eval_params: Vector | None = None  # the parameters to evaluate, where they differ from `params`


@dataclass(frozen=True)
class BytesPerStep:
    """Payload bytes that nodes send per step; fractions where an exchange comes every few steps."""

    workers: tuple[float, ...]  # by rank
    servers: tuple[float, ...] = ()  # by rank
    replies: tuple[float, ...] = ()  # by rank: the part of a worker's bytes that replies to pushes of other workers


def per_step(size_bytes: int, steps: int) -> float:
    """Return the bytes per step of `size_bytes` sent once every `steps` steps; an integer where it is exact."""
    quotient, remainder = divmod(size_bytes, steps)
    return size_bytes / steps if remainder else quotient


@dataclass(frozen=True)
class Phases:
    """The training phases of a strategy: one, or two with the switch between them."""

    first: "PhaseStrategy"
    switch: "Switch | None" = None

    def __iter__(self) -> Iterator["PhaseStrategy"]:
        yield self.first
        if self.switch:
            yield self.switch.second

    @property
    def served(self) -> "PhaseStrategy | None":
        """The first phase that has servers; where both have, they have the same ones."""
        return next((phase for phase in self if phase.server_algorithm()), None)

    @property
    def server_algorithm(self) -> ServerAlgorithm | None:
        """What the servers of the first phase that has servers run."""
        return self.served.server_algorithm() if self.served else None

    @property
    def server_count(self) -> int:
        """Number of dedicated servers."""
        return self.server_algorithm.server_count if self.server_algorithm else 0


class Strategy(Component, ABC):
    """A strategy as a scenario declares it. The scenario and the planner call these methods."""

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:  # noqa: ARG002 - most fit every scenario
        """Yield what contradicts the rest of the scenario; paths start at this strategy."""
        yield from ()

    def resolve(self, site: CollectiveSite, cost: CostModel) -> tuple[Self, dict[str, float]]:  # noqa: ARG002 - see below
        """Return this strategy with everything decided that depends on the network.

        Returns:
            The strategy, and the predicted seconds of an exchange by each alternative among which it chose. By default
            there is nothing to decide.
        """
        return self, {}

    @abstractmethod
    def phases(self) -> Phases:
        """Return the training phases."""


@dataclass(frozen=True)
class PhaseTraits:
    """Properties of a training phase that do not depend on the cluster."""

    is_synchronous: bool = True  # whether all replicas hold the same bits after every step
    workers_update: bool = True  # whether every worker runs the optimiser; otherwise the servers do
    exchange_period: int = 1  # steps from one exchange to the next; a worker that leaves in between exchanges once more
    compressor: Compressor = IDENTITY  # of gradients, or of what is exchanged instead


class PhaseStrategy(Strategy):
    """A strategy that trains for a whole run, or for one of two phases. The planner calls these methods."""

    def phases(self) -> Phases:
        return Phases(self)

    def traits(self) -> PhaseTraits:
        """Return the properties that do not depend on the cluster."""
        return PhaseTraits()

    def optimiser(self, declared: AnyOptimiser, workers: int) -> AnyOptimiser:  # noqa: ARG002 - most use the declared one
        """Return the optimiser that makes one update of this phase."""
        return declared

    def schedule(self, workers: int) -> Schedule:  # noqa: ARG002 - only collectives have rounds
        """Return the schedule of the collective; empty without one."""
        return Schedule()

    @abstractmethod
    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> BytesPerStep:
        """Return the payload bytes that each node sends in one step, for a vector of `entries` of `dtype`."""

    @abstractmethod
    def predict(self, cost: CostModel) -> StepPrediction:
        """Return the closed form of the step time, evaluated on this cluster."""

    def server_algorithm(self) -> ServerAlgorithm | None:
        """Return what servers run; None when the phase has no servers."""
        return None

    @abstractmethod
    def worker_algorithm(self, context: WorkerContext) -> "WorkerAlgorithm":
        """Return what a worker runs."""


@dataclass(frozen=True)
class WorkerAlgorithm(ABC):
    """What a worker runs in one training phase. State is passed in and returned; the worker keeps it."""

    context: WorkerContext

    @property
    def send_targets(self) -> tuple[str, ...]:
        """Names of the nodes to which this worker sends."""
        ranks = self.context.schedule.target_ranks(self.context.rank)
        return tuple(self.context.workers[rank] for rank in sorted(ranks))

    @abstractmethod
    def init(self, params: Vector) -> State:
        """Return the state before the first step."""

    def resume(self, params: Vector, version: int, optimiser_state: OptimiserState) -> State:  # noqa: ARG002 - see below
        """Return the state to continue with from parameters of another phase; by default that of a first step.

        Args:
            params: the parameters, on the device.
            version: number of updates that have been made to them.
            optimiser_state: as this phase continues with it; servers have their own.
        """
        return self.init(params)

    def optimiser_state(self, state: State) -> OptimiserState | None:  # noqa: ARG002 - most leave it to servers
        """Return the optimiser's state where every worker holds all of it; None where servers hold it."""
        return None

    @abstractmethod
    async def step(self, step: int, params: Vector, gradient: Gradient, state: State, times: StepTimes) -> StepResult:
        """Exchange and update; measured times are added to `times` as exchange, wait and update."""

    async def finish(self, step: int, result: StepResult, times: StepTimes) -> None:  # noqa: B027 - most owe nothing
        """Send what this worker still owes the others; called before it leaves at `step`."""

    async def leave(self, step: int) -> None:  # noqa: B027 - most are not waited for
        """Tell the others that this worker takes no part from `step` on."""
