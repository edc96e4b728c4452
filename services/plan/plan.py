"""Plan of one trial: a record of all decisions made before the trial starts.

Nodes, engines and checks read the plan.
"""

import hashlib
import platform
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from services.cluster.events import PlannedEvent
from services.cluster.links.fluid_link import choose_message_bytes
from services.cluster.links.message_lengths import MessageSizeLimits
from services.cluster.network import Network
from services.collectives import TransferSchedule
from services.learning.data_order import DataOrder
from services.learning.datasets import AnyPlannedDataset
from services.learning.epoch_orders import AnyEpochOrder, ShuffledOrder
from services.learning.evaluation_schedule import EvaluationSchedule
from services.learning.layout import VectorRange
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.learning.parameter_updater import ParameterUpdater
from services.learning.partitions import AnyPartition, IidPartition
from services.learning.schedules import AnySchedule, ConstantSchedule
from services.plan.balance_plan import BalancePlan
from services.plan.cost import DTYPE_BY_PRECISION, ModelVector, build_cost_model, choose_message_size_limits
from services.plan.node_plan import NodePlan, NodeRole
from services.plan.strategy_choice import StrategyChoice
from services.scenario.command_workload import CommandWorkload
from services.scenario.learning_task import learning_task_of
from services.scenario.payload import PlannedPayload
from services.scenario.run_settings import EngineName, FidelityLimits, SecuritySettings, Timeouts, TransportName
from services.scenario.step_profile import StepProfile
from services.scenario.target import QualityTarget
from services.schema.component import FrozenRecord
from services.strategies import AnyStrategy, CommandStrategy
from services.strategies.cost_model import CostModel, Flow, StepTimePrediction
from services.strategies.overlap import GradientBucket


class FormatStagePlan(FrozenRecord):
    """Consecutive steps whose messages have other sizes than those of most steps, such as during a warm-up."""

    end_step: int  # first step after this stage
    bytes_per_step: dict[str, int | float]  # payload bytes that each node sends in one step, by node name


class PostSwitchPhasePlan(FrozenRecord):
    """Plan of the training phase after a strategy switch.

    `Plan` has the same fields for the first phase.
    """

    planned_step: int | None  # first step of this phase; None: the losses decide during the run, or it never begins
    optimiser: AnyOptimiser
    schedule: TransferSchedule  # of the collective; empty without one
    exchange_period: int = 1  # steps from one exchange to the next
    exchanges_per_period: int = 1  # as in `Plan`
    bytes_per_step: dict[str, int | float]  # payload bytes that each node sends in one step, by node name
    reply_bytes_per_step: dict[str, int | float]  # part of a worker's bytes that replies to pushes of other workers
    predicted: StepTimePrediction
    is_synchronous: bool  # as in `Plan`
    worker_weights: tuple[int, ...]  # share of a batch by rank; 0 for a worker that only serves in this phase
    latencies_s: tuple[float, float]  # of an exchange before and after the switch, if bytes took no time; virtual
    model_transfer_bytes: dict[str, int]  # payload bytes that each node sends if the switch has to move the state
    compressed_traffic_ratio: float | None = None  # as in `Plan`
    sums_per_exchange: int = 1  # as in `Plan`
    # Whether the compressor of the first phase has a state, such as residuals, which the switch drops.
    drops_compressor_state: bool = False


class Plan(FrozenRecord, ABC):
    """Plan of one trial: all decisions made before its start.

    All nodes of the trial read the same plan. `TrainingPlan` and `CommandPlan` add what the workers run.
    """

    workload_kind: Literal["training", "command"]
    run: str  # identifier of the run
    trial: str  # identifier of the trial, and name of its folder
    label: str  # of the strategy
    engine: EngineName
    baseline: bool  # whether this trial is the baseline: one worker without any exchange
    repeat: int
    seed: int
    labels: dict[str, str | int | float]  # name of a sweep axis -> value, and always "workers"
    question: str = ""  # of the scenario, for the report

    strategy: AnyStrategy
    precision: Literal["fp32", "fp64"]
    batch: int  # samples per step over all workers
    target: QualityTarget | None
    stop_at_target: bool
    steps: int  # of the whole budget; 0: unknown
    parameters: int  # entries of the vector that is exchanged in a step
    vector_bytes: int  # size of this vector on the wire: the declared size if there is one
    payload: PlannedPayload | None = None  # model that messages are as large as; None: as the trained model

    workers: int  # number of workers
    servers: int  # number of dedicated servers
    nodes: tuple[NodePlan, ...]
    shards: tuple[VectorRange, ...]  # ranges of the parameter vector
    shard_owners: tuple[str, ...] = ()  # name of the node that owns each shard: a server, or a worker that serves too
    schedule: TransferSchedule  # of the collective; empty without one
    network: Network = Network()
    events: tuple[PlannedEvent, ...] = ()
    horizon_s: float | None = None  # virtual time up to which random events are drawn; None: there are no random events

    dilation: float
    transport: TransportName = "grpc"
    security: SecuritySettings
    timeouts: Timeouts
    fidelity: FidelityLimits
    strict: bool = False  # whether to reject a host whose kernel can't enforce every declared property
    delay_mechanism: Literal["kernel", "transport"] = "kernel"  # what delays messages under engine `docker`
    hash_every_step: bool = False  # whether replicas are compared after every step, which costs time, or every epoch

    # Whether all workers do the same number of steps, and evaluate common parameters after the same step.
    is_synchronous: bool = True
    is_gossip: bool = False  # whether workers exchange vectors only with neighbours, so that no step is a barrier
    exchange_period: int = 1  # steps from one exchange to the next
    exchanges_per_period: int = 1  # more where the steps from one exchange to the next differ within a period
    sums_per_exchange: int = 1  # collectives, one after another, of an exchange without buckets
    chooses_partners: bool = False  # whether workers exchange with workers that are chosen during the run
    bytes_per_step: dict[str, int | float]  # payload bytes that each node sends; mean over an exchange period
    reply_bytes_per_step: dict[str, int | float]  # part of a worker's bytes that replies to pushes of other workers
    # Payload bytes that each worker sends to average the parameters before an evaluation; empty if it sends none.
    evaluation_bytes: dict[str, int | float] = Field({})
    format_stages: tuple[FormatStagePlan, ...] = ()  # first steps, with other bytes than `bytes_per_step`
    predicted: StepTimePrediction
    # Bytes that all workers send in an exchange, divided by those of a ring all-reduce without compression; None
    # without a compressor or without a collective.
    compressed_traffic_ratio: float | None = None
    predicted_s: float = 0.0  # virtual seconds of the whole budget, without start and evaluation
    # Reason why no closed form describes the training time, so that `predicted_s` is an estimate and is not compared
    # with measurements; empty if one does.
    training_inapplicable_reason: str = ""
    # Number of workers at which the links of the servers are full in an asynchronous phase; None: they never are.
    saturation_workers: float | None = None
    # Predicted seconds of an exchange under each alternative, where the strategy was resolved from `auto`.
    exchange_s_by_choice: dict[str, float] = Field({})
    strategy_choice: StrategyChoice | None = None  # of a strategy that was chosen among candidates
    second_phase: PostSwitchPhasePlan | None = None  # of a strategy that switches
    balance: BalancePlan | None = None  # of a strategy with unequal shares
    alpha_s: float = 0.0  # virtual seconds that this host adds to a message, in predictions; 0 without calibration

    @property
    @abstractmethod
    def sample_budget(self) -> int:
        """Number of samples of the whole training; 0 if it is not known before the end."""

    @property
    @abstractmethod
    def code_folders(self) -> tuple[Path, ...]:
        """Folders with copies of the user's code that the trial runs, or that has made its data."""

    @abstractmethod
    def host_folders(self, role: NodeRole) -> tuple[Path, ...]:
        """Return the folders of the host that nodes with this role read: data, code and packages."""

    @property
    @abstractmethod
    def host_python(self) -> str | None:
        """Minor version of Python whose packages nodes import from the host, such as 3.11; None if they import none."""

    @property
    def needs_gpu(self) -> bool:
        """Whether a worker of the trial declares `device: cuda`."""
        return any(node.device == "cuda" for node in self.nodes)

    @property
    def dtype(self) -> str:
        """Name of the type of a parameter, as in NumPy."""
        return DTYPE_BY_PRECISION[self.precision]

    @property
    def message_size_limits(self) -> MessageSizeLimits:
        """Limits on the size of the messages into which the transport cuts long vectors."""
        return choose_message_size_limits(
            self.engine, self.transport, self.vector_bytes, is_declared_size=self.payload is not None
        )

    @property
    def payload_scale(self) -> float:
        """Bytes on the wire for each byte of a payload: above 1 where a larger model's messages are declared."""
        return self.payload.scale if self.payload else 1.0

    @property
    def sends_padding(self) -> bool:
        """Whether nodes send as many bytes as messages of the declared size have.

        Where the transport emulates the rates of links, only the size of a message counts, and padding is not sent.
        """
        return self.engine == "docker"

    @property
    def longest_message_bytes(self) -> int:
        """Size of the longest message in bytes.

        It matters for engines in which the transport, not the kernel, shapes the links.
        """
        return choose_message_bytes(self.vector_bytes, is_declared_size=self.payload is not None)

    @property
    def message_timeout_s(self) -> float:
        """Longest time for which a node waits for a message, in virtual seconds.

        It is the step timeout multiplied by the number of steps between two exchanges, in the phase with the most.
        """
        periods = [self.exchange_period, self.second_phase.exchange_period if self.second_phase else 1]
        return self.timeouts.step * max(periods)

    @property
    def estimated_training_wall_s(self) -> float:
        """Estimated duration of training on this host, in real seconds.

        The time for evaluations and for starting nodes is not included.
        """
        return 0.0 if self.engine == "simulated" else self.predicted_s * self.dilation

    @property
    def is_result_on_workers(self) -> bool:
        """Whether the result of the run is the mean of the parameters of all workers, which may differ at the end."""
        last_phase = self.second_phase or self
        return not last_phase.is_synchronous and not self.shard_owners

    @property
    def step_cost_model(self) -> CostModel:
        """Cost model of the planned cluster, from which exchange times are predicted."""
        return build_cost_model(
            self.nodes,
            self.network,
            ModelVector(self.parameters, self.dtype, self.payload_scale),
            self.alpha_s,
            self.message_size_limits,
        )

    @property
    def sha256(self) -> str:
        """SHA-256 digest of the trial plan.

        All nodes of a trial must have the same digest.
        """
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def worker_server_push_pairs(self) -> tuple[Flow, ...]:
        """Pairs of worker and shard owner between which pushes cross the network.

        Each pair (worker, owner) consists of the names of both nodes.
        """
        weights = self.second_phase.worker_weights if self.second_phase else (1,) * self.workers
        pushing = [node.name for node, weight in zip(self.node_plans_of_role("worker"), weights, strict=True) if weight]
        return tuple((worker, owner) for owner in self.shard_owners for worker in pushing if worker != owner)

    def node_plan(self, node_name: str) -> NodePlan:
        """Return the plan of the node `node_name`."""
        return next(node for node in self.nodes if node.name == node_name)

    def node_plans_of_role(self, role: NodeRole) -> tuple[NodePlan, ...]:
        """Return the plans of all nodes with the role `role`, such as all workers, by rank."""
        return tuple(node for node in self.nodes if node.role == role)


class TrainingPlan(Plan):
    """Plan of a trial in which the workers train a model of Ensayo or of the user under a strategy."""

    workload_kind: Literal["training"] = "training"
    dataset: AnyPlannedDataset
    model: AnyModel
    optimiser: AnyOptimiser  # with the learning rate of the first training phase
    workload_optimiser: AnyOptimiser  # as declared; the strategy may scale its learning rate
    rate_schedule: AnySchedule = ConstantSchedule()  # of the learning rate, by shares of the sample budget
    clip_norm: float | None = None  # largest norm of the gradient of an update
    batch_rate_factor: float = 1.0  # factor of `batch_scaling` in the learning rate, in all training phases
    micro_batches: int = 1  # parts in which a worker computes its share of a batch
    epochs: int  # training budget
    initial_shares: tuple[int, ...]  # of a whole batch at the first step, by rank; equal shares are all 1
    train_samples: int
    eval_samples: int
    steps_per_epoch: int
    evaluate_every: int  # training samples between two evaluations
    order: AnyEpochOrder = ShuffledOrder()  # of the training samples within an epoch
    partition: AnyPartition = IidPartition()  # of the training samples over the workers
    part_sizes: tuple[int, ...] = ()  # training samples that each worker owns, by rank; empty: all share all samples
    class_counts: tuple[tuple[int, ...], ...] = ()  # the same by rank and class; empty, too, for a regression

    @property
    def data_order(self) -> DataOrder:
        """Order in which training samples are drawn, by step and rank."""
        return DataOrder(
            samples=self.train_samples,
            batch=self.batch,
            seed=self.seed,
            epoch_order=self.order,
            part_sizes=self.part_sizes,
        )

    @property
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        """Buckets in which the first training phase exchanges gradients during the backward pass.

        Empty if it exchanges gradients after the backward pass.
        """
        return self.strategy.training_phases().first.describe_worker_exchange().gradient_buckets

    @property
    def sample_budget(self) -> int:
        """Number of samples in all epochs of the training budget."""
        return self.epochs * self.train_samples

    @property
    def code_folders(self) -> tuple[Path, ...]:
        folders = (self.model.folders_on_nodes.code, self.dataset.code_folder)
        return tuple(folder for folder in folders if folder is not None)

    def host_folders(self, role: NodeRole) -> tuple[Path, ...]:
        data = None if role == "ps_shard" else self.dataset.folder_on_nodes  # only the other roles read samples
        return tuple(folder for folder in (data, *self.model.folders_on_nodes) if folder is not None)

    @property
    def host_python(self) -> str | None:
        has_packages = self.model.folders_on_nodes.packages is not None
        return ".".join(platform.python_version_tuple()[:2]) if has_packages else None

    def make_parameter_updater(self, phase_optimiser: AnyOptimiser) -> ParameterUpdater:
        """Return the updater of the parameters in a training phase with the optimiser `phase_optimiser`."""
        arrays = self.model.parameter_layout(learning_task_of(self.dataset).task).array_ranges
        return ParameterUpdater(phase_optimiser, self.rate_schedule, self.sample_budget, self.clip_norm, arrays)

    @property
    def evaluation_schedule(self) -> EvaluationSchedule:
        """Steps after which the quality of the model is evaluated."""
        return EvaluationSchedule(order=self.data_order, epochs=self.epochs, samples_between=self.evaluate_every)


class CommandPlan(Plan):
    """Plan of a trial in which each worker runs a process of the user's training command."""

    workload_kind: Literal["command"] = "command"
    command: tuple[str, ...]  # with all variables replaced
    workload: CommandWorkload
    step_profile: StepProfile | None  # from a dry run; None: it is not known
    no_step_profile_reason: str = ""
    collective_s: tuple[float, ...] = ()  # predicted virtual seconds of each collective of the step profile
    racks: tuple[tuple[int, ...], ...] = ()  # ranks of workers that are near each other

    @property
    def sample_budget(self) -> int:
        return 0

    @property
    def code_folders(self) -> tuple[Path, ...]:
        return () if self.workload.code_folder is None else (self.workload.code_folder,)

    def host_folders(self, role: NodeRole) -> tuple[Path, ...]:
        if role != "worker":
            return ()
        return (Path(self.workload.folder), *self.code_folders, *map(Path, self.workload.host_packages))

    @property
    def host_python(self) -> str | None:
        interpreter = self.workload.interpreter
        return interpreter.minor_version if interpreter and self.workload.image_facts is None else None

    @property
    def command_strategy(self) -> CommandStrategy:
        """Strategy of the command."""
        if not isinstance(self.strategy, CommandStrategy):
            raise TypeError(f"trial {self.trial}: strategy {self.strategy.kind} runs no command")
        return self.strategy

    @property
    def process_group(self) -> Literal["gloo", "ensayo"]:
        """What runs the collectives of the command."""
        return self.command_strategy.process_group

    def step_compute_s(self, node: NodePlan) -> float | None:
        """Return the declared compute time of a step of a worker in virtual seconds, without its variation.

        Return None if the worker computes as fast as the host.
        """
        return self.workload.batch_per_worker / node.throughput if node.throughput else None


AnyPlan: TypeAlias = Annotated[TrainingPlan | CommandPlan, Field(discriminator="workload_kind")]
_ANY_PLAN: TypeAdapter[TrainingPlan | CommandPlan] = TypeAdapter(AnyPlan)


def decode_plan(plan_json: bytes | str) -> TrainingPlan | CommandPlan:
    """Return the plan that a JSON text describes.

    Raises:
        pydantic.ValidationError: the text is no plan.
    """
    return _ANY_PLAN.validate_json(plan_json)
