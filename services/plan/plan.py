"""The plan of one trial: every derived decision, as nodes read it."""

import hashlib
from typing import Literal

from pydantic import Field

from services.cluster.events import Event
from services.cluster.fluid_link import quantum_bytes
from services.cluster.message_lengths import Lengths
from services.cluster.network import Network
from services.collectives import Schedule
from services.learning.data_order import DataOrder
from services.learning.datasets import AnyDataset
from services.learning.layout import VectorRange
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.plan.cost import DTYPES, cost_model, message_lengths
from services.plan.node_plan import NodePlan, Role
from services.scenario.scenario import EngineName, Fidelity, Security, Timeouts, TransportName
from services.scenario.target import Target
from services.schema.component import Record
from services.strategies import AnyStrategy
from services.strategies.cost_model import CostModel, Flow, StepPrediction


class AfterSwitch(Record):
    """What holds once a strategy has given way to another; what stands beside it in the plan holds before."""

    step: int | None  # of the budget, before which the switch is planned; None: losses decide, or never
    optimiser: AnyOptimiser
    schedule: Schedule  # of the collective
    bytes_per_step: dict[str, int | float]
    answered_per_step: dict[str, int | float]  # as in the plan
    predicted: StepPrediction
    synchronous: bool  # whether all replicas hold the same bits after every step
    shares: tuple[int, ...]  # of a batch, by rank, as weights: 0 for a worker that only serves from then on
    latencies_s: tuple[float, float]  # before and after: what an exchange would take behind links of any rate
    hand_over_bytes: dict[str, int]  # payload bytes that each node sends, unless all hold everything already


class Plan(Record):
    """One trial, decided; what a node gets to read."""

    run: str
    trial: str
    label: str
    engine: EngineName
    baseline: bool
    repeat: int
    seed: int
    labels: dict[str, str | int | float]
    question: str = ""

    dataset: AnyDataset
    model: AnyModel
    optimiser: AnyOptimiser
    strategy: AnyStrategy
    precision: Literal["fp32", "fp64"]
    batch: int
    epochs: int
    target: Target | None
    stop_at_target: bool
    train_samples: int
    eval_samples: int
    steps_per_epoch: int
    steps: int
    parameters: int
    vector_bytes: int

    workers: int
    servers: int
    nodes: tuple[NodePlan, ...]
    shards: tuple[VectorRange, ...]
    holders: tuple[str, ...] = ()  # names of the nodes that hold them; a worker's process may hold one beside its work
    schedule: Schedule  # of the collective
    network: Network = Network()
    events: tuple[Event, ...] = ()
    horizon_s: float | None = None  # virtual; random events were drawn up to here; None: there are none

    dilation: float
    transport: TransportName = "grpc"
    security: Security
    timeouts: Timeouts
    fidelity: Fidelity
    strict: bool = False
    delay_rung: Literal["kernel", "transport"] = "kernel"  # who delays messages where the engine is `docker`
    hash_every_step: bool = False  # a check of replicas that costs time; epochs are always checked

    synchronous: bool = True  # all replicas hold the same bits after every step
    exchanges_every: int = 1  # steps from one exchange to the next
    bytes_per_step: dict[str, int | float]  # mean over such a round
    answered_per_step: dict[str, int | float]  # of a worker's: what it sends because all others have done one
    predicted: StepPrediction
    predicted_s: float = 0.0  # virtual, by the closed form: the whole budget, without start and evaluation
    saturates_at: float | None = None  # workers that fill the servers' links out of lockstep; None: no number does
    choices: dict[str, float] = Field({})  # where the strategy was chosen here: seconds of an exchange by each way
    after: AfterSwitch | None = None  # where the strategy switches
    alpha_s: float = 0.0  # what this host adds to a message, in the prediction; virtual; 0: not calibrated

    @property
    def order(self) -> DataOrder:
        """The order of the data."""
        return DataOrder(samples=self.train_samples, batch=self.batch, seed=self.seed)

    @property
    def dtype(self) -> str:
        """NumPy's name of the precision."""
        return DTYPES[self.precision]

    @property
    def lengths(self) -> Lengths:
        """Of the messages that nodes send."""
        return message_lengths(self.engine, self.transport, self.vector_bytes)

    @property
    def piece_bytes(self) -> int:
        """The longest message where nobody but the transport shapes links."""
        return quantum_bytes(self.vector_bytes)

    @property
    def patience_s(self) -> float:
        """How long a node waits for a message, virtual: who sends it may do all steps of a round before."""
        return self.timeouts.step * self.exchanges_every

    @property
    def estimated_wall_s(self) -> float:
        """Seconds that the whole budget takes on this host, without start and evaluation."""
        return 0.0 if self.engine == "simulated" else self.predicted_s * self.dilation

    @property
    def cost(self) -> CostModel:
        """What closed forms need to know of it."""
        return cost_model(self.nodes, self.network, self.parameters, self.dtype, self.batch, self.alpha_s, self.lengths)

    @property
    def sha256(self) -> str:
        """Digest that all nodes of a trial must share."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def pushes(self) -> tuple[Flow, ...]:
        """Who pushes to whom over the network."""
        pushing = self.after.shares if self.after else (1,) * self.workers
        names = [node.name for node, share in zip(self.of_role("worker"), pushing, strict=True) if share]
        return tuple((worker, holder) for holder in self.holders for worker in names if worker != holder)

    def node(self, name: str) -> NodePlan:
        """The node of this name."""
        return next(node for node in self.nodes if node.name == name)

    def of_role(self, role: Role) -> tuple[NodePlan, ...]:
        """The nodes of a role, by rank."""
        return tuple(node for node in self.nodes if node.role == role)
