"""Base classes of strategies: the declared strategy, its training phases, and the algorithm of a worker.

A strategy is a component that a scenario declares. It has one training phase, or two with a strategy switch between
them. Before a run starts, each phase states which servers it needs, how many bytes each node sends per step, and the
step time (a closed form). Workers run a `WorkerAlgorithm`: coroutines over the interfaces Transport and Clock.
Servers run a `ServerAlgorithm`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np

from services.collectives.base import NetworkAndModelSizes, TransferSchedule
from services.collectives.execution.executor import GroupMember
from services.compressors import ArrayShape, CompressorSeed, IdentityCompressor, VectorCompression
from services.learning.batch_balance import BatchBalance, UniformBalance
from services.learning.batch_balance.base import DeclaredSpeeds
from services.learning.layout import VectorRange
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.runtime.device import ComputeDevice
from services.runtime.run_log import StepTimer
from services.runtime.transport import Transport
from services.schema.arrays import HostArray, Vector
from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.overlap import BucketReduction, GradientBucket
from services.strategies.partner_byte_bounds import PartnerByteBounds

if TYPE_CHECKING:
    from services.strategies.switching.switch import TrainingPhaseSwitch

WorkerState: TypeAlias = Any  # state of a worker algorithm between steps
IDENTITY_COMPRESSOR = IdentityCompressor()
UNIFORM_BALANCE = UniformBalance()


class WholeVectorNeed(NamedTuple):
    """Reason why the node that updates parameters needs the whole parameter vector, and how to avoid the need."""

    reason: str  # such as "optimiser lamb needs the norms of whole arrays"
    alternative: str  # such as "use an element-wise optimiser"


@dataclass(frozen=True)
class ScenarioSizes:
    """Sizes of a scenario: number of workers, number of steps, and array sizes.

    The sizes, and the need of the workload for whole vectors, decide whether a strategy can be used in the scenario.
    """

    workers: int
    steps: int  # of the whole budget
    steps_per_epoch: int
    evaluations: int  # of the whole budget
    array_sizes: tuple[int, ...]  # entries of each array of the model
    has_link_rates: bool  # whether any link has a declared rate
    whole_vector_need: WholeVectorNeed | None = None  # None: each range of the vector can be updated alone
    batch: int = 0  # samples of all workers in a step
    declared_speeds: DeclaredSpeeds = ()  # of the workers, by rank
    equal_shares_need: str = (
        ""  # why workers must have equal shares of a batch, and how to avoid it; empty: they need not
    )
    array_shapes: tuple[ArrayShape, ...] = ()  # of the model; empty: not known
    has_declared_payload: bool = False  # whether messages are as large as those of another model
    micro_batches: int = 1  # parts in which a worker computes its share of a batch

    @property
    def parameter_count(self) -> int:
        """Number of model parameters: the length of the parameter vector."""
        return sum(self.array_sizes)


@dataclass(frozen=True)
class Gradient:
    """The mean gradient over a worker's share of the batch."""

    mean: Vector  # shape (n,), on the device
    samples: int  # in the share; 0 is possible in the last batch of an epoch
    samples_before: int  # of all workers, used before this step if all workers do the same number of steps
    host_mean: HostArray | None = None  # copy that was made during the backward pass; None: none was made
    reduction: BucketReduction | None = None  # sum over all workers, which began during the backward pass

    def to_host(self, device: ComputeDevice) -> HostArray:
        """Return the mean gradient in host memory, without a copy if it is already there."""
        return device.to_host(self.mean) if self.host_mean is None else self.host_mean


@dataclass(frozen=True)
class WorkerContext:
    """Resources of one worker that its worker algorithm uses.

    The resources are rank, node names, shards, updater, device and transport.
    """

    rank: int
    workers: Sequence[str]  # node names by rank
    shard_owners: Sequence[str]  # names of the nodes that own a shard, by shard; a worker may be one of them
    shards: Sequence[VectorRange]  # of the parameter vector
    schedule: TransferSchedule  # of the collective
    updater: ParameterUpdater  # of the whole parameter vector
    device: ComputeDevice
    transport: Transport
    batch_size: Callable[[int], int]  # samples of all workers in a step
    seed: int = 0  # of the trial

    @property
    def group_member(self) -> GroupMember:
        """This worker in the group of all workers, which runs collectives."""
        return GroupMember(self.transport, self.workers, self.rank)

    @property
    def other_workers(self) -> tuple[str, ...]:
        """Names of all workers but this one, by rank."""
        return tuple(name for rank, name in enumerate(self.workers) if rank != self.rank)

    @property
    def compressor_seed(self) -> CompressorSeed:
        """Seed of the random numbers with which this worker compresses whole vectors."""
        return CompressorSeed(self.seed, self.rank)


@dataclass(frozen=True)
class StepResult:
    """Result of a training step in one worker.

    The result consists of the worker's parameters, the state of its algorithm, and sample counts.
    """

    params: Vector
    state: WorkerState
    staleness: float | None = None  # updates by other workers between reading the parameters and updating them
    samples: int = 0  # of all workers, in the parameters so far; 0: this worker does not know
    pending_samples: int | None = None  # of other workers, not in the parameters yet; None: this worker does not know
    eval_params: Vector | None = None  # the parameters to evaluate, where they differ from `params`
    # Where layers begin the next forward pass when their own parameters are there: ends of the forward pass, given its
    # duration in seconds. None: the forward pass begins after this step.
    end_of_next_forward_s: Callable[[float], float] | None = None
    # Exchange by which all workers compute the mean of their parameters (`eval_params`, or else `params`) before an
    # evaluation. None: no exchange is needed.
    average_params: Callable[[], Awaitable[Vector]] | None = None


@dataclass(frozen=True)
class BytesPerStep:
    """Mean payload bytes that each node sends per step.

    The means are not integers if nodes exchange vectors only every few steps.
    """

    workers: tuple[float, ...]  # by rank
    servers: tuple[float, ...] = ()  # by rank
    replies: tuple[float, ...] = ()  # by rank: bytes of a worker that are replies of its own shard to other workers

    def multiply(self, factor: int) -> "BytesPerStep":
        """Return the bytes of exchanges that send `factor` vectors of equal size instead of one."""
        products = (tuple(size * factor for size in sizes) for sizes in (self.workers, self.servers, self.replies))
        return BytesPerStep(*products)


def average_bytes_per_step(message_bytes: int, steps_per_message: int) -> float:
    """Return the mean bytes per step of a message that is not sent in every step.

    The message is sent every `steps_per_message` steps. The result is an int if the mean is whole.
    """
    quotient, remainder = divmod(message_bytes, steps_per_message)
    return message_bytes / steps_per_message if remainder else quotient


@dataclass(frozen=True)
class PhasesAndSwitch:
    """Training phases of a strategy: one phase, or two phases with a strategy switch between them."""

    first: "SinglePhaseStrategy"
    switch: "TrainingPhaseSwitch | None" = None

    def __iter__(self) -> Iterator["SinglePhaseStrategy"]:
        yield self.first
        if self.switch:
            yield self.switch.second

    @property
    def first_phase_with_servers(self) -> "SinglePhaseStrategy | None":
        """First training phase that uses servers.

        None if no phase uses servers. A later phase with servers uses the same servers.
        """
        return next((phase for phase in self if phase.server_algorithm()), None)

    @property
    def first_server_algorithm(self) -> ServerAlgorithm | None:
        """Server algorithm of the first training phase that has servers.

        None if no phase has servers.
        """
        return self.first_phase_with_servers.server_algorithm() if self.first_phase_with_servers else None

    @property
    def server_count(self) -> int:
        """Number of nodes that are servers, and not workers, from the start of the run.

        Workers that become servers do not count.
        """
        return self.first_server_algorithm.dedicated_server_count if self.first_server_algorithm else 0


class Strategy(ScenarioComponent, ABC):
    """Base class of a strategy as declared in a scenario.

    A strategy finds its conflicts with other keys, chooses the collective, and has one or two training phases.
    """

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:  # noqa: ARG002 - most fit every scenario
        """Yield the conflicts between this strategy and other keys of the scenario.

        Key paths are relative to the strategy.
        """
        yield from ()

    def resolve_auto_collective(
        self,
        network_and_model_sizes: NetworkAndModelSizes,  # noqa: ARG002 - see below
        cost_model: CostModel,  # noqa: ARG002
    ) -> tuple[Self, dict[str, float]]:
        """Return this strategy with each value `auto` replaced by a concrete choice.

        For example, collective `auto` is replaced by the collective chosen for this network and model.

        Returns:
            The strategy, and the predicted seconds of an exchange with each alternative, by the alternative's name.
        """
        return self, {}

    def after_format_stages(self) -> "Strategy":
        """Return the strategy of the steps after its first steps, if messages have other sizes in the first steps."""
        return self

    def list_candidates(self) -> "tuple[SinglePhaseStrategy, ...]":
        """Return the strategies among which the plan of a trial chooses; empty if this strategy is planned itself."""
        return ()

    def explain_worker_count_conflict(self, worker_count: int) -> str:  # noqa: ARG002 - most allow any number
        """Return why this strategy can't train on this number of workers, and the remedy; empty if it can."""
        return ""

    @abstractmethod
    def training_phases(self) -> PhasesAndSwitch:
        """Return the training phases of this strategy."""


@dataclass(frozen=True)
class ExchangePattern:
    """How a training phase divides batches over the workers and exchanges vectors, for example how often.

    The pattern is the same on every cluster.
    """

    is_synchronous: bool = True  # whether all replicas hold the same bits after every step
    workers_run_optimiser: bool = True  # whether every worker runs the optimiser; otherwise the servers do
    exchange_period: int = 1  # steps from one exchange to the next; a worker that leaves in between exchanges once more
    exchanges_per_period: int = 1  # more where the steps from one exchange to the next differ within a period
    compressor: VectorCompression = IDENTITY_COMPRESSOR  # of the gradients or parameters that are exchanged
    sums_per_exchange: int = 1  # collectives, one after another, of an exchange without buckets
    gradient_buckets: tuple[GradientBucket, ...] = ()  # exchanged during the backward pass; empty: after it
    balance: BatchBalance = UNIFORM_BALANCE  # division of a batch over the workers
    includes_optimiser_state: bool = False  # whether an exchange also sends the vectors of the optimiser's state
    partner_byte_bounds: PartnerByteBounds | None = None  # if partners are chosen during the run; None: planned

    @property
    def has_compressor_state(self) -> bool:
        """Whether the compressor keeps a state, such as residuals, between two vectors."""
        return self.compressor.keeps_state

    def count_vectors(self, optimiser: AnyOptimiser) -> int:
        """Return the number of vectors of one exchange, given the optimiser of the workers."""
        return 1 + len(optimiser.init_state(np.zeros(1)).slots) if self.includes_optimiser_state else 1


class StrategyFormatStage(NamedTuple):
    """Consecutive steps of a training phase whose messages have equal sizes."""

    end_step: int  # first step after this stage
    strategy: "SinglePhaseStrategy"  # all of whose steps have messages of these sizes


class SinglePhaseStrategy(Strategy):
    """Base class of a strategy with one training phase.

    It is used for a whole run, or before or after a strategy switch.
    """

    def training_phases(self) -> PhasesAndSwitch:
        return PhasesAndSwitch(self)

    def describe_worker_exchange(self) -> ExchangePattern:
        """Return how workers exchange vectors in this training phase, for example how often.

        The result is the same on every cluster.
        """
        return ExchangePattern()

    def scale_learning_rate(self, declared_optimiser: AnyOptimiser, worker_count: int) -> AnyOptimiser:  # noqa: ARG002 - see below
        """Return the optimiser with the learning rate of this training phase.

        By default, return the declared optimiser.
        """
        return declared_optimiser

    def collective_schedule(self, worker_count: int) -> TransferSchedule:  # noqa: ARG002 - only collectives have rounds
        """Return the rounds of transfers by which workers run a collective.

        The result is empty if the strategy has no collective.
        """
        return TransferSchedule()

    def list_format_stages(self) -> tuple["StrategyFormatStage", ...]:
        """Return the stages of the first steps, in which messages have other sizes than in all later steps."""
        return ()

    @abstractmethod
    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        """Return the payload bytes that each node sends in one step.

        The parameter vector has `parameter_count` entries of the type `dtype`.
        """

    def sent_bytes_per_evaluation(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:  # noqa: ARG002 - most exchange nothing
        """Return the payload bytes that each worker sends to average the parameters before an evaluation."""
        return BytesPerStep(workers=(0,) * worker_count)

    @abstractmethod
    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        """Return the step time on a cluster, predicted by the formula of this strategy."""

    def server_algorithm(self) -> ServerAlgorithm | None:
        """Return the algorithm that the servers run.

        Return None for a phase without servers.
        """
        return None

    @abstractmethod
    def create_worker_algorithm(self, worker_context: WorkerContext) -> "WorkerAlgorithm":
        """Return the algorithm that a worker runs in this training phase."""


@dataclass(frozen=True)
class WorkerAlgorithm(ABC):
    """Base class of the algorithm that a worker runs in a training phase.

    The worker keeps the algorithm's state.
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

    def begin_step(self, step: int, params: Vector, worker_state: WorkerState) -> WorkerState:  # noqa: ARG002 - most exchange after the compute
        """Start the exchange that overlaps with the compute of a step, and return the state with this exchange.

        By default, start nothing, and return the state unchanged.
        """
        return worker_state

    @abstractmethod
    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: WorkerState, step_timer: StepTimer
    ) -> StepResult:
        """Exchange the gradient or the parameters with other nodes, and return the updated parameters.

        The durations of the step phases exchange, wait and update are added to `step_timer`.
        """

    async def exchange_unsent_result(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> None:  # noqa: B027 - most exchange every step
        """Exchange the results of all steps since the last exchange with other nodes.

        This is necessary because the worker leaves at `leave_step`.
        """

    def final_params(self, step_result: StepResult) -> Vector:
        """Return the parameters of this worker after it has left, given the result of its last step."""
        return step_result.params

    async def announce_leaving(self, leave_step: int) -> None:  # noqa: B027 - most are not waited for
        """Inform other nodes that this worker leaves.

        The other nodes then wait for no message of this worker from `leave_step` on.
        """
