"""View of plan.json: the parts of a trial's plan that the analysis reads.

Every field has the name of its key in plan.json, or names the key as its alias. No other module of the analysis depends
on keys of plan.json.
"""

from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from services.cluster.events import PlannedEvent
from services.cluster.network import Network
from services.collectives import Schedule
from services.scenario.scenario import FidelityLimits


class PlanSection(BaseModel):
    """Frozen record of one section of plan.json; keys that the analysis does not need are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class PlannedTarget(PlanSection):
    """Target of training: a metric and the value that it must reach."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    def is_reached_by(self, metric_value: float) -> bool:
        """Return whether a value of the metric reaches the target; NaN never does."""
        if self.at_least is not None:
            return metric_value >= self.at_least
        return self.at_most is not None and metric_value <= self.at_most

    @property
    def bound(self) -> float:
        """Value that the metric must reach: a minimum or a maximum; NaN for a target with neither."""
        return next((bound for bound in (self.at_least, self.at_most) if bound is not None), float("nan"))

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.at_least is None else '≥'} {self.bound:g}"


class PlannedNode(PlanSection):
    """Declared properties of one node; None where nothing was declared."""

    name: str
    role: str
    rank: int | None = None
    throughput: float | None = None  # samples per second
    uplink_bps: float | None = None
    downlink_bps: float | None = None
    buffer_bytes: int | None = None  # of the port that sends to the node
    variation: dict[str, Any] | None = None  # of a paced worker's speed
    cpus: float = 1.0  # share of a core that the node's container may use

    @property
    def is_quota_device(self) -> bool:
        """Whether the node is a worker whose declared speed is set by its CPU quota alone."""
        return self.role == "worker" and self.throughput is None and self.cpus < 1


class PredictedStep(PlanSection):
    """Step time predicted by the strategy's closed form, in virtual seconds, and the formula."""

    compute_s: float = 0.0
    exchange_s: float = 0.0
    formula: str = ""
    steps_s: tuple[float, ...] = ()  # step time of each worker by rank, where workers do not wait for each other
    counted: float = 1.0  # share of the computed gradients that go into updates

    @property
    def step_s(self) -> float | None:
        """Predicted seconds of a whole step of the slowest worker; None if the plan predicts no step time."""
        return (self.compute_s + self.exchange_s) or None

    @property
    def median_step_s(self) -> float | None:
        """Predicted median of the step time over all steps of all workers.

        A worker that is twice as fast does twice as many steps.
        """
        if not all(self.steps_s or (0.0,)):
            return self.step_s
        ascending_s = sorted(self.steps_s)
        cumulative_rates = list(accumulate(1 / step_s for step_s in ascending_s))
        half = cumulative_rates[-1] / 2
        return next(step_s for step_s, rate in zip(ascending_s, cumulative_rates, strict=True) if rate >= half)

    @property
    def mean_step_s(self) -> float | None:
        """Predicted mean of the step time over all steps of all workers."""
        if not all(self.steps_s or (0.0,)):
            return self.step_s
        return len(self.steps_s) / sum(1 / step_s for step_s in self.steps_s)


class PlanAfterSwitch(PlanSection):
    """Parts of the plan that hold after one strategy has been replaced by another."""

    planned_step: int | None = None  # step of a planned switch; None where a rule decides, or training never switches
    bytes_per_step: dict[str, float] = {}
    reply_bytes_per_step: dict[str, float] = {}  # as in PlanView
    predicted: PredictedStep = PredictedStep()
    is_synchronous: bool = True
    worker_weights: tuple[int, ...] = ()  # shares of a batch, by rank: 0 for a worker that becomes a server
    latencies_s: tuple[float, float] = (0.0, 0.0)  # of an exchange before and after, at infinite link rates
    hand_over_bytes: dict[str, int] = {}

    @property
    def promoted_workers(self) -> tuple[str, ...]:
        """Names of the workers that are only servers after the switch."""
        return tuple(f"worker-{rank}" for rank, share in enumerate(self.worker_weights) if not share)


class PlanView(PlanSection):
    """Plan of one trial, as far as the analysis reads it."""

    run: str = ""
    trial: str
    label: str  # of the strategy in the scenario
    baseline: bool = False
    repeat: int = 0
    seed: int = 0
    labels: dict[str, str | int | float] = {}  # swept key -> value
    workers: int
    servers: int = 0
    dilation: float = 1.0
    engine: str = ""
    steps: int = 0
    batch: int = 0
    epochs: int = 0
    train_samples: int = 0
    target: PlannedTarget | None = None
    nodes: tuple[PlannedNode, ...] = ()
    parameters: int = 0
    precision: str = "fp32"  # lowest precision in which gradients are sent
    shards: tuple[tuple[int, int], ...] = ()  # ranges of the parameter vector, by shard
    shard_owners: tuple[str, ...] = ("server-0",)  # node names by shard; may include workers
    is_synchronous: bool | None = None  # replicas are bit-identical after every step; None: derived from the strategy
    exchange_period: int = 1  # steps from one exchange to the next; a worker that leaves in between exchanges once more
    bytes_per_step: dict[str, float] = {}  # node -> payload bytes that it sends in one step
    # worker that owns shards -> payload bytes that it sends as replies to the other workers in one step
    reply_bytes_per_step: dict[str, float] = {}
    predicted: PredictedStep = PredictedStep()
    predicted_s: float = 0.0  # predicted duration of the whole training; 0 if the plan predicts no step time
    saturation_workers: float | None = None  # number that saturates the servers' links in asynchronous training
    second_phase: PlanAfterSwitch | None = None  # for a strategy that switches
    vector_bytes: int = 0
    alpha_s: float = 0.0  # latency of a message in the closed form; 0 if it has not been measured
    schedule: Schedule = Schedule()  # of a collective; without rounds for other strategies
    strategy: dict[str, Any] = {}
    network: Network = Network()
    events: tuple[PlannedEvent, ...] = ()
    horizon_s: float | None = None  # virtual time up to which random events were drawn; None: no random events
    strict: bool = False
    fidelity: FidelityLimits = FidelityLimits()

    @property
    def has_varying_speeds(self) -> bool:
        """Whether the speed of a worker varies from step to step."""
        return any(node.variation for node in self.nodes if node.role == "worker")

    @property
    def synchrony(self) -> Literal["synchronous", "asynchronous"]:
        """Synchronous if all replicas have equal parameters after every step.

        A strategy that switches has the synchrony of its first strategy.
        """
        if self.is_synchronous is not None:
            return "synchronous" if self.is_synchronous else "asynchronous"
        return "synchronous" if self.synchrony_kind == "bsp" else "asynchronous"

    @property
    def synchrony_kind(self) -> str:
        """Kind of the synchronisation policy, such as `bsp`; that of the first strategy, if the strategy switches."""
        first = self.strategy.get("before") or self.strategy
        return str((first.get("synchrony") or {"kind": "bsp"}).get("kind"))

    @property
    def longest_chain_messages(self) -> float:
        """Number of messages in the longest chain of dependent transfers of the collective."""
        return self.schedule.critical_path_latency_s(dict.fromkeys(self.schedule.edges, 1.0))

    @property
    def exchange_link_s(self) -> float:
        """Predicted seconds of an exchange without the latency of messages: transfer times and path delays."""
        return self.predicted.exchange_s - self.alpha_s * self.longest_chain_messages

    @property
    def condition(self) -> tuple[tuple[str, str | int | float], ...]:
        """Swept keys and values except the number of workers; only trials of one condition are compared."""
        return tuple(sorted((key, value) for key, value in self.labels.items() if key != "workers"))

    @property
    def declared_samples_per_second(self) -> float | None:
        """Sum of the workers' declared throughputs; None if any worker is not paced."""
        throughputs = [node.throughput for node in self.nodes if node.role == "worker"]
        known = [throughput for throughput in throughputs if throughput is not None]
        return sum(known) if known and len(known) == len(throughputs) else None

    @property
    def predicted_samples_per_second(self) -> float | None:
        """Predicted samples per second of all workers together, including those whose gradients are dropped."""
        counted_s = self.predicted_s * self.predicted.counted
        return self.epochs * self.train_samples / counted_s if counted_s else None


def read_plan(plan_path: Path) -> PlanView:
    """Read plan.json of a trial; raise ValidationError if a key is missing or has a wrong type."""
    return PlanView.model_validate_json(plan_path.read_text(encoding="utf-8"))
