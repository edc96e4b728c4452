"""Plan of one trial: a record of all decisions made before the trial starts.

Nodes, engines and checks read the plan. `TrainingPlan` and `CommandPlan` extend it by what the workers run.
"""

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal

from pydantic import Field

from services.cluster.events import PlannedEvent
from services.cluster.links.fluid_link import choose_message_bytes
from services.cluster.links.message_lengths import MessageSizeLimits
from services.cluster.network import Network
from services.collectives import TransferSchedule
from services.learning.layout import VectorRange
from services.plan.candidates.strategy_choice import StrategyChoice
from services.plan.cost import DTYPE_BY_PRECISION, ModelVector, build_cost_model, choose_message_size_limits
from services.plan.node_plan import NodePlan, NodeRole
from services.plan.training.balance_plan import BalancePlan
from services.plan.training.phase_plans import FormatStagePlan, PostSwitchPhasePlan
from services.scenario.payload import PlannedPayload
from services.scenario.recovery import RecoverySettings
from services.scenario.run_settings import EngineName, FidelityLimits, SecuritySettings, Timeouts, TransportName
from services.scenario.target import QualityTarget
from services.schema.component import FrozenRecord
from services.strategies import AnyStrategy
from services.strategies.cost_model import CostModel, Flow, StepTimePrediction

LOSS_ANNOUNCEMENT_TIMEOUTS = 3  # heartbeat timeouts within which a lost node is found, and announced


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
    failure_interval_s: float | None = None  # declared mean time between failures of all nodes; None: not declared

    dilation: float
    transport: TransportName = "grpc"
    recovery: RecoverySettings = RecoverySettings()
    security: SecuritySettings
    timeouts: Timeouts
    fidelity: FidelityLimits
    strict: bool = False  # whether to reject a host whose kernel can't enforce every declared property
    delay_mechanism: Literal["kernel", "transport"] = "kernel"  # what delays messages under engine `docker`
    hash_every_step: bool = False  # whether replicas are compared after every step, which costs time, or every epoch

    # Whether all workers do the same number of steps, and stop for an evaluation after the same step.
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
    def payload_limit_bytes(self) -> int:
        """Longest payload in bytes that a node accepts in one message of the data network.

        Vectors are cut into pieces. A compressed piece may be longer than the piece by positions, scales and headers.
        """
        return round(2 * self.message_size_limits.max_message_bytes / self.payload_scale) + (1 << 20)

    @property
    def control_message_limit_bytes(self) -> int:
        """Longest message in bytes that a node accepts on the control network.

        The longest are reports of all parameters, of at most eight bytes each; digests and texts are short.
        """
        return 2 * 8 * self.parameters + (16 << 20)

    @property
    def message_timeout_s(self) -> float:
        """Longest time for which a node waits for a message, in virtual seconds.

        It is the step timeout multiplied by the number of steps between two exchanges, in the phase with the most.
        """
        periods = [self.exchange_period, self.second_phase.exchange_period if self.second_phase else 1]
        return self.timeouts.step * max(periods)

    @property
    def loss_announcement_timeout_s(self) -> float:
        """Virtual seconds for which a node with a network error waits for the announcement of a lost node.

        It is 0 if the trial does not go on without a lost node.
        """
        if not self.recovery.is_active:
            return 0.0
        timeout_s = LOSS_ANNOUNCEMENT_TIMEOUTS * self.recovery.heartbeat_timeout
        if self.recovery.restarts_workers:
            timeout_s += self.recovery.restart_delay + self.timeouts.start
        return timeout_s

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

        All nodes of a trial must have the same digest. It does not contain the mechanism that an engine chooses for
        delays at the start of the trial: a checkpoint with which the trial begins has the digest before.
        """
        return hashlib.sha256(self.model_dump_json(exclude={"delay_mechanism"}).encode()).hexdigest()

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
