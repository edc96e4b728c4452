"""The parts of a trial plan (plan.json) that the analysis reads.

Every field has the name of its key in plan.json, or names its key as the alias. Other modules of the analysis do not
depend on keys of plan.json, except for a strategy's own parameters.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, AliasPath, BaseModel, ConfigDict, Field

from services.cluster.events import PlannedEvent
from services.cluster.network import Network
from services.cluster.running_costs import HourlyPrice, PowerDraw
from services.collectives import TransferSchedule
from services.plan.candidates.strategy_choice import StrategyChoice
from services.plan.training.balance_plan import BalancePlan
from services.scenario.payload import PlannedPayload
from services.scenario.run_settings import FidelityLimits
from services.scenario.target import QualityTarget
from services.schema.units import Duration
from services.strategies.cost_model import StepTimePrediction

SweptValue: TypeAlias = str | int | float
ABORT = "abort"  # failure policy under which a lost node ends the trial
NODE_LOSS_EVENTS = frozenset({"kill", "restart", "oom"})  # kinds of events that end the process of a node
MAX_CHUNKS = 1 << 16  # of a vector; a collective plans a few chunks per rank or one per array of the model
NO_PREDICTION = StepTimePrediction(compute_s=0.0, exchange_s=0.0, formula="")


def _check_is_file_name(name: str) -> str:
    """Return a name that becomes part of a path, for example in exports: a plan may come from elsewhere."""
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a file")
    return name


FileName = Annotated[str, AfterValidator(_check_is_file_name)]


def _check_chunks(schedule: TransferSchedule) -> TransferSchedule:
    """Return the schedule if every transfer is of chunks that the vector has.

    The analysis goes through all chunks of all transfers, so a damaged plan.json could keep it busy without end.
    """
    if schedule.chunk_count > MAX_CHUNKS:
        raise ValueError(f"a vector has {schedule.chunk_count} chunks; {MAX_CHUNKS} are allowed")
    for transfer in schedule.transfers_of_all_rounds:
        if not 0 <= transfer.first_chunk <= transfer.stop_chunk <= schedule.chunk_count:
            chunks = f"chunks {transfer.first_chunk} to {transfer.stop_chunk - 1}"
            raise ValueError(f"a transfer is of {chunks}; the vector has {schedule.chunk_count}, counted from 0")
    return schedule


class PlanJsonSection(BaseModel):
    """Frozen record of one section of plan.json.

    Keys that the analysis does not need are ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class PlannedNode(PlanJsonSection):
    """Properties that the scenario declares for one node.

    A property that the scenario does not declare is None.
    """

    name: FileName
    role: str
    rank: int | None = None
    throughput: float | None = None  # samples per second
    uplink_bps: float | None = None
    downlink_bps: float | None = None
    buffer_bytes: int | None = None  # of the port that sends to the node
    variation: dict[str, Any] | None = None  # of a worker's emulated compute speed
    cpus: float = 1.0  # share of a core that the node's container may use
    watts: PowerDraw | None = None
    price: HourlyPrice | None = None

    @property
    def is_slowed_by_cpu_quota(self) -> bool:
        """Whether the node is a worker that is slowed by a CPU quota and has no emulated compute speed."""
        return self.role == "worker" and self.throughput is None and self.cpus < 1


class PlannedFormatStage(PlanJsonSection):
    """Consecutive steps whose messages have other sizes than those of most steps, such as during a warm-up."""

    end_step: int  # first step after this stage
    bytes_per_step: dict[str, float] = {}  # node -> payload bytes that it sends in one step


class PlanAfterStrategySwitch(PlanJsonSection):
    """Parts of a trial's plan that apply after training has switched to its second strategy."""

    planned_step: int | None = None  # step of a planned switch; None where a rule decides, or training never switches
    exchange_period: int = 1  # steps from one exchange to the next
    exchanges_per_period: int = 1  # as in TrialPlan
    bytes_per_step: dict[str, float] = {}
    reply_bytes_per_step: dict[str, float] = {}  # as in TrialPlan
    predicted: StepTimePrediction = NO_PREDICTION
    is_synchronous: bool = True
    worker_weights: tuple[int, ...] = ()  # shares of a batch, by rank: 0 for a worker that becomes a server
    latencies_s: tuple[float, float] = (0.0, 0.0)  # of an exchange before and after, at infinite link rates
    model_transfer_bytes: dict[str, int] = {}
    optimiser: dict[str, Any] = {}  # with the learning rate of this phase
    compressed_traffic_ratio: float | None = None  # as in TrialPlan

    @property
    def new_server_names(self) -> tuple[str, ...]:
        """Names of the workers that only act as servers after the strategy switch."""
        return tuple(f"worker-{rank}" for rank, share in enumerate(self.worker_weights) if not share)


class ProfiledCollective(PlanJsonSection):
    """One collective of a step of a user's command."""

    operation: str
    bytes: int
    dtype: str = ""


class CommandStepProfile(PlanJsonSection):
    """Collectives of a step of a user's command."""

    collectives: tuple[ProfiledCollective, ...] = ()


class PlannedCheckpoints(PlanJsonSection):
    """How often the nodes of a trial write checkpoints."""

    steps: int | None = None  # from one checkpoint to the next
    interval: Duration | None = None  # of training from one checkpoint to the next; excludes `steps`


class PlannedRecovery(PlanJsonSection):
    """What a trial does when it loses a node."""

    on_failure: str = ABORT  # failure policy
    checkpoint: PlannedCheckpoints | None = None  # None: nodes write no checkpoints


class PlannedContinuation(PlanJsonSection):
    """Earlier training that a trial continues from a checkpoint."""

    folder: str = ""
    is_attempt: bool = False  # whether it is an interrupted attempt at the same trial
    step: int = 0  # of the checkpoint; 0: training began anew
    workers: int = 0
    unused_checkpoints: tuple[str, ...] = ()  # why the earlier training, or newer checkpoints, were not continued


class TrialPlan(PlanJsonSection):
    """Plan of one trial, as far as the analysis reads it."""

    workload_kind: str = "training"  # or "command": a training command of the user
    # of a command: metric -> regular expression, in the order of the scenario
    metric_patterns: dict[str, str] = Field({}, validation_alias=AliasPath("workload", "metrics"))
    samples_per_worker_step: int = Field(0, validation_alias=AliasPath("workload", "batch_per_worker"))  # of a command
    step_profile: CommandStepProfile | None = None  # of a command, by its dry run
    collective_s: tuple[float, ...] = ()  # predicted seconds of each collective of the step profile
    run: str = ""
    trial: FileName
    label: str  # of the strategy in the scenario
    baseline: bool = False
    repeat: int = 0
    seed: int = 0
    labels: dict[str, SweptValue] = {}  # swept key -> value
    workers: int
    servers: int = 0
    dilation: float = 1.0
    engine: str = ""
    steps: int = 0
    batch: int = 0
    epochs: int = 0
    train_samples: int = 0
    evaluate_every: int = 0  # training samples between evaluations; 0 in plans of older versions: one epoch
    partition: dict[str, Any] = {"kind": "iid"}  # of the training samples over the workers
    part_sizes: tuple[int, ...] = ()  # training samples that each worker owns, by rank; empty: all share all samples
    class_counts: tuple[tuple[int, ...], ...] = ()  # the same by rank and class; empty, too, for a regression
    target: QualityTarget | None = None
    optimiser: dict[str, Any] = {}  # with the learning rate of the first training phase; empty in old plans
    rate_schedule: dict[str, Any] = {"kind": "constant"}  # of the learning rate
    clip_norm: float | None = None  # largest norm of the gradient of an update
    order: dict[str, Any] = {"kind": "shuffled"}  # of the training samples within an epoch
    batch_rate_factor: float = 1.0  # factor in the learning rate for the global batch
    dataset: dict[str, Any] = {}
    model: dict[str, Any] = {}
    workload_optimiser: dict[str, Any] = {}  # as the scenario declares it
    nodes: tuple[PlannedNode, ...] = ()
    parameters: int = 0
    precision: str = "fp32"  # number format of parameters, and of gradients before compression
    shards: tuple[tuple[int, int], ...] = ()  # ranges of the parameter vector, by shard
    shard_owners: tuple[str, ...] = ("server-0",)  # node names by shard; may include workers
    is_synchronous: bool | None = None  # all workers do the same number of steps; None: derived from the strategy
    is_gossip: bool = False  # workers exchange vectors only with neighbours, so that no step is a barrier
    sums_per_exchange: int = 1  # collectives, one after another, of an exchange without buckets
    chooses_partners: bool = False  # workers exchange with workers that are chosen during the run
    exchange_period: int = 1  # steps from one exchange to the next; a worker that leaves in between exchanges once more
    exchanges_per_period: int = 1  # more where the steps from one exchange to the next differ within a period
    bytes_per_step: dict[str, float] = {}  # node -> payload bytes that it sends in one step
    format_stages: tuple[PlannedFormatStage, ...] = ()  # first steps, with other bytes than `bytes_per_step`
    # worker that owns shards -> payload bytes that it sends as replies to the other workers in one step
    reply_bytes_per_step: dict[str, float] = {}
    evaluation_bytes: dict[str, float] = {}  # worker -> payload bytes that it sends before an evaluation
    predicted: StepTimePrediction = NO_PREDICTION
    predicted_s: float = 0.0  # of the whole budget; 0 if nothing was declared to predict it from
    # Reason why no closed form describes the training time, so that `predicted_s` is an estimate and is not compared
    # with measurements; empty if one does.
    training_inapplicable_reason: str = ""
    # number of workers that saturate the servers' links in asynchronous training
    saturation_workers: float | None = None
    second_phase: PlanAfterStrategySwitch | None = None  # for a strategy that switches
    # Bytes that all workers send in an exchange, divided by those of a ring all-reduce without compression; None
    # without a compressor or without a collective.
    compressed_traffic_ratio: float | None = None
    balance: BalancePlan | None = None  # load balancing; None: all workers have equal shares of a batch
    vector_bytes: int = 0  # of the parameter vector on the wire
    payload: PlannedPayload | None = None  # model that messages are as large as; None: as the trained model
    alpha_s: float = 0.0  # latency of a message in the closed form; 0 if it has not been measured
    # Of a collective; without rounds for other strategies.
    schedule: Annotated[TransferSchedule, AfterValidator(_check_chunks)] = TransferSchedule()
    strategy: dict[str, Any] = {}
    strategy_choice: StrategyChoice | None = None  # of a strategy that was chosen among candidates
    network: Network = Network()
    events: tuple[PlannedEvent, ...] = ()
    horizon_s: float | None = None  # virtual time up to which random events were drawn; None: no random events
    failure_interval_s: float | None = None  # declared mean time between failures of all nodes; None: not declared
    recovery: PlannedRecovery = PlannedRecovery()
    continued: PlannedContinuation | None = None  # None: training began anew
    data_protection: str = Field("", validation_alias=AliasPath("security", "data"))  # empty in old plans
    strict: bool = False
    fidelity: FidelityLimits = FidelityLimits()

    @property
    def declares_failures(self) -> bool:
        """Whether the scenario declares events that end nodes, a failure policy, or checkpoints."""
        has_recovery = self.recovery.on_failure != ABORT or self.recovery.checkpoint is not None
        return has_recovery or any(event.change.kind in NODE_LOSS_EVENTS for event in self.events)

    def predicted_collective_s(self, operation: str, size_bytes: int, dtype: str) -> float | None:
        """Return the predicted seconds of a collective of a user's command; None if its dry run had no such call."""
        calls = self.step_profile.collectives if self.step_profile else ()
        return next(
            (
                seconds
                for call, seconds in zip(calls, self.collective_s, strict=False)  # empty in plans of older versions
                if (call.operation, call.bytes, call.dtype) == (operation, size_bytes, dtype)
            ),
            None,
        )

    @property
    def slowest_link_bps(self) -> float | None:
        """Smallest declared rate of a link of a node, or of a link that nodes share; None if no rate is declared."""
        declared_bps = [rate for node in self.nodes for rate in (node.uplink_bps, node.downlink_bps) if rate]
        return min([*declared_bps, *(link.rate_bps for link in self.network.shared_links)], default=None)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Metrics that a command declares, that of the target first; empty for other workloads."""
        target = (self.target.metric,) if self.target and self.metric_patterns else ()
        return tuple(dict.fromkeys((*target, *self.metric_patterns)))

    @property
    def has_varying_worker_speeds(self) -> bool:
        """Whether the compute time of any worker varies from step to step, by its speed or by its share of a batch."""
        has_changing_shares = self.balance is not None and self.balance.resize_period > 0
        return has_changing_shares or any(node.variation for node in self.nodes if node.role == "worker")

    @property
    def sync_or_async(self) -> Literal["synchronous", "asynchronous"]:
        """Return "synchronous" if all workers do the same number of steps, otherwise "asynchronous".

        A strategy that switches has the synchrony of its first strategy.
        """
        if self.is_synchronous is not None:
            return "synchronous" if self.is_synchronous else "asynchronous"
        return "synchronous" if self.synchronisation_policy_kind == "bsp" else "asynchronous"

    @property
    def synchronisation_policy_kind(self) -> str:
        """Kind of the synchronisation policy, such as `bsp`.

        If the strategy switches, it is the kind of the first strategy.
        """
        first = self.strategy.get("before") or self.strategy
        return str((first.get("synchrony") or {"kind": "bsp"}).get("kind"))

    @property
    def critical_path_message_count(self) -> float:
        """Number of messages on the critical path of an exchange by collectives.

        The critical path is the longest chain of transfers that wait for each other.
        """
        return self.sums_per_exchange * self.schedule.critical_path_latency_s(
            dict.fromkeys(self.schedule.sending_rank_pairs, 1.0)
        )

    @property
    def predicted_exchange_without_latency_s(self) -> float:
        """Predicted seconds of a gradient exchange without the latency of its messages.

        Transfers and path delays are included; `alpha_s` per message is not.
        """
        return self.predicted.exchange_s - self.alpha_s * self.critical_path_message_count

    @property
    def swept_values(self) -> tuple[tuple[str, SweptValue], ...]:
        """Swept scenario keys with their values, except the number of workers.

        Only trials with equal values are compared.
        """
        return swept_values_of_labels(self.labels)

    @property
    def condition(self) -> str:
        """Swept keys and values except the number of workers as one phrase, such as "uplink 10mbit"."""
        return describe_swept_values(self.swept_values)

    @property
    def workload_parts(self) -> dict[str, Any]:
        """Parts of the workload that determine the samples to the target, apart from batch and batch scaling.

        They are the fields of `analysis.convergence.reference_points.ConvergenceWorkload`. A single worker uses all
        samples, whatever the partition is.
        """
        has_schedule = self.rate_schedule.get("kind") != "constant"
        return {
            "dataset": self.dataset,
            "model": self.model,
            "optimiser": self.workload_optimiser,
            "target": self.target,
            "precision": self.precision,
            "evaluate_every": self.evaluate_every or self.train_samples,
            "schedule": self.rate_schedule,
            "schedule_samples": self.epochs * self.train_samples if has_schedule else None,
            "clip_norm": self.clip_norm,
            "order": self.order,
            "partition": self.partition if self.workers > 1 else {"kind": "iid"},
        }

    @property
    def declared_samples_per_second(self) -> float | None:
        """Sum of the workers' declared compute speeds, in samples/s.

        None if a worker has no declared speed.
        """
        throughputs = [node.throughput for node in self.nodes if node.role == "worker"]
        known = [throughput for throughput in throughputs if throughput is not None]
        return sum(known) if known and len(known) == len(throughputs) else None

    @property
    def predicted_samples_per_second(self) -> float | None:
        """Predicted samples per second of all workers together, including those whose gradients are dropped.

        None if no closed form describes the training time.
        """
        if self.training_inapplicable_reason:
            return None
        counted_s = self.predicted_s * self.predicted.counted
        return self.epochs * self.train_samples / counted_s if counted_s else None


def swept_values_of_labels(labels: Mapping[str, SweptValue]) -> tuple[tuple[str, SweptValue], ...]:
    """Return the swept keys with their values, except the number of workers, sorted by key."""
    return tuple(sorted((key, value) for key, value in labels.items() if key != "workers"))


def describe_swept_values(swept_values: Iterable[tuple[str, SweptValue]]) -> str:
    """Return swept keys and values as one phrase, such as "uplink 10mbit, workers 4"; empty without swept values."""
    return ", ".join(f"{key.split('.')[-1]} {value}" for key, value in swept_values)


def read_plan(plan_path: Path) -> TrialPlan:
    """Read plan.json of a trial.

    Raise ValidationError if a key is missing or has a wrong type.
    """
    return TrialPlan.model_validate_json(plan_path.read_text(encoding="utf-8"))
