"""What did the plan of a trial say? The only file that knows the keys of plan.json."""

from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from services.cluster.events import Event
from services.cluster.network import Network
from services.collectives import Schedule
from services.scenario.scenario import Fidelity


class View(BaseModel):
    """A frozen window on a part of plan.json; keys that the analysis does not need are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Target(View):
    """What counts as trained."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    def reached_by(self, value: float) -> bool:
        """Whether a value of the metric is good enough; NaN never is."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most

    @property
    def bound(self) -> float:
        """The value to reach, from whichever side; NaN for a target without one."""
        return next((bound for bound in (self.at_least, self.at_most) if bound is not None), float("nan"))

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.at_least is None else '≥'} {self.bound:g}"


class Node(View):
    """One node as declared; None where nothing was declared."""

    name: str
    role: str
    rank: int | None = None
    throughput: float | None = None  # samples per second
    uplink_bps: float | None = None
    downlink_bps: float | None = None
    buffer_bytes: int | None = None  # of the port towards it
    variation: dict[str, Any] | None = None  # of a paced worker's speed
    cpus: float = 1.0  # share of a core that its container may use

    @property
    def is_quota_device(self) -> bool:
        """Whether a share of a core is what makes it as slow as declared."""
        return self.role == "worker" and self.throughput is None and self.cpus < 1


class Predicted(View):
    """The closed form's answer for one step, and which form it was."""

    compute_s: float = 0.0
    exchange_s: float = 0.0
    formula: str = ""
    steps_s: tuple[float, ...] = ()  # by rank, of workers that do not wait for each other
    counted: float = 1.0  # share of the gradients computed that go into updates

    @property
    def step_s(self) -> float | None:
        """Seconds of a whole step, of the slowest worker; None where nothing was declared to predict it from."""
        return (self.compute_s + self.exchange_s) or None

    @property
    def median_step_s(self) -> float | None:
        """Of all steps of all workers; a worker that is twice as fast does twice as many."""
        if not all(self.steps_s or (0.0,)):
            return self.step_s
        in_order = sorted(self.steps_s)
        done = list(accumulate(1 / seconds for seconds in in_order))
        return next(seconds for seconds, so_far in zip(in_order, done, strict=True) if so_far >= done[-1] / 2)

    @property
    def mean_step_s(self) -> float | None:
        """Over the same steps."""
        if not all(self.steps_s or (0.0,)):
            return self.step_s
        return len(self.steps_s) / sum(1 / seconds for seconds in self.steps_s)


class After(View):
    """What holds once a strategy has given way to another."""

    step: int | None = None  # that the switch was planned for; None: losses decide, or never
    bytes_per_step: dict[str, float] = {}
    answered_per_step: dict[str, float] = {}  # as in the plan
    predicted: Predicted = Predicted()
    synchronous: bool = True
    shares: tuple[int, ...] = ()  # of a batch, by rank: 0 for a worker that only serves from then on
    latencies_s: tuple[float, float] = (0.0, 0.0)  # before, after: an exchange behind links of any rate
    hand_over_bytes: dict[str, int] = {}

    @property
    def promoted(self) -> tuple[str, ...]:
        """Workers that only serve from then on."""
        return tuple(f"worker-{rank}" for rank, share in enumerate(self.shares) if not share)


class PlanView(View):
    """The plan of one trial, as far as the analysis looks at it."""

    run: str = ""
    trial: str
    label: str  # of the strategy
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
    target: Target | None = None
    nodes: tuple[Node, ...] = ()
    parameters: int = 0
    precision: str = "fp32"  # the lowest in which gradients travel
    shards: tuple[tuple[int, int], ...] = ()  # ranges of the vector, by shard
    holders: tuple[str, ...] = ("server-0",)  # nodes that hold a shard, by shard; a worker may be among them
    synchronous: bool | None = None  # all replicas hold the same bits after every step; None: the strategy tells
    exchanges_every: int = 1  # steps from one exchange to the next; who leaves in between exchanges once more
    bytes_per_step: dict[str, float] = {}  # node -> payload bytes that it sends in one step
    answered_per_step: dict[str, float] = {}  # worker -> those of them that it sends because all others have done one
    predicted: Predicted = Predicted()
    predicted_s: float = 0.0  # of the whole budget; 0 where nothing was declared to predict it from
    saturates_at: float | None = None  # workers that fill the servers' links out of lockstep, by the closed form
    after: After | None = None  # where the strategy switches
    vector_bytes: int = 0
    alpha_s: float = 0.0  # of a message, in the closed form; 0: nobody has measured it
    schedule: Schedule = Schedule()  # of a collective; no rounds elsewhere
    strategy: dict[str, Any] = {}
    network: Network = Network()
    events: tuple[Event, ...] = ()
    horizon_s: float | None = None  # virtual; random events were drawn up to here; None: there are none
    strict: bool = False
    fidelity: Fidelity = Fidelity()

    @property
    def speeds_vary(self) -> bool:
        """Whether a worker's speed is drawn anew from step to step."""
        return any(node.variation for node in self.nodes if node.role == "worker")

    @property
    def synchrony(self) -> Literal["synchronous", "asynchronous"]:
        """Whether all replicas hold the same parameters after every step; of a switching strategy, before it."""
        if self.synchronous is not None:
            return "synchronous" if self.synchronous else "asynchronous"
        return "synchronous" if self.kind_of_synchrony == "bsp" else "asynchronous"

    @property
    def kind_of_synchrony(self) -> str:
        """Name of the rule by which workers wait for each other; of a switching strategy, before it."""
        first = self.strategy.get("before") or self.strategy
        return str((first.get("synchrony") or {"kind": "bsp"}).get("kind"))

    @property
    def chain(self) -> float:
        """Messages that follow each other in the longest chain of a collective's transfers."""
        return self.schedule.critical_path_latency_s(dict.fromkeys(self.schedule.edges, 1.0))

    @property
    def link_s(self) -> float:
        """Seconds that bytes and distances take in an exchange, by the closed form: all but what messages cost."""
        return self.predicted.exchange_s - self.alpha_s * self.chain

    @property
    def condition(self) -> tuple[tuple[str, str | int | float], ...]:
        """The swept keys other than the number of workers: trials are compared only where these agree."""
        return tuple(sorted((key, value) for key, value in self.labels.items() if key != "workers"))

    @property
    def samples_per_second(self) -> float | None:
        """Sum of the workers' declared rates; None as soon as one worker is unpaced."""
        rates = [node.throughput for node in self.nodes if node.role == "worker"]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    @property
    def predicted_samples_per_second(self) -> float | None:
        """What the closed form says that all workers compute, those whose gradients are dropped included."""
        counted_s = self.predicted_s * self.predicted.counted
        return self.epochs * self.train_samples / counted_s if counted_s else None


def read(path: Path) -> PlanView:
    """Reads plan.json."""
    return PlanView.model_validate_json(path.read_text(encoding="utf-8"))
