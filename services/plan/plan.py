"""The plan of one trial: every derived decision. After `make_plan` nobody decides anything of this kind again."""

import hashlib
from collections.abc import Sequence
from math import isfinite, prod
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from services.cluster.addresses import Addressing, Nowhere, Place
from services.cluster.device_profiles import AnyVariation
from services.cluster.events import Event, decide
from services.cluster.fluid_link import QUANTUM_BYTES, goodput, quantum_bytes
from services.cluster.message_lengths import GRPC, TCP, Lengths
from services.cluster.network import Network, Port, resolve
from services.collectives import Schedule, Site
from services.learning.data_order import Order, apportion
from services.learning.datasets import AnyDataset
from services.learning.layout import Layout, Range
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.runtime.device import Want
from services.scenario.scenario import AUTO, EngineName, Fidelity, Scenario, Security, Timeouts, TransportName, Trial
from services.scenario.target import Target
from services.scenario.workload import posed
from services.schema.component import Record
from services.strategies import AnyStrategy, Strategy, Switching
from services.strategies.base import Cost, Flow, Predicted, Sent
from services.strategies.servers import ServedStrategy

Role: TypeAlias = Literal["coordinator", "worker", "ps_shard"]

COORDINATOR = "coordinator"
HORIZON = 3.0  # random events are drawn for so many times the predicted duration
FASTEST_S = 8 / 10e9  # per byte: no link that nobody limits is faster on one host
DTYPES = {"fp32": "float32", "fp64": "float64"}


class NodePlan(Record):
    """One node."""

    name: str
    role: Role
    rank: int  # within its role
    place: Place
    device: Want = "cpu"
    throughput: float | None = None  # samples/s that a paced worker declares; None: as fast as the host
    slot: float = 0.0  # share of the step after which a paced worker does its mathematics, in [0, 1)
    uplink_bps: float | None = None  # virtual; the engine divides by the dilation
    downlink_bps: float | None = None
    buffer_bytes: int | None = None  # of the port towards the node
    variation: AnyVariation | None = None  # of a paced worker's speed
    memory_bytes: int
    cpus: float


class AfterSwitch(Record):
    """What holds once a strategy has given way to another; what stands beside it in the plan holds before."""

    step: int | None  # of the budget, before which the switch is planned; None: losses decide, or never
    optimiser: AnyOptimiser
    schedule: Schedule  # of the collective
    bytes_per_step: dict[str, int | float]
    answered_per_step: dict[str, int | float]  # as in the plan
    predicted: Predicted
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
    shards: tuple[Range, ...]
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
    predicted: Predicted
    predicted_s: float = 0.0  # virtual, by the closed form: the whole budget, without start and evaluation
    saturates_at: float | None = None  # workers that fill the servers' links out of lockstep; None: no number does
    choices: dict[str, float] = Field({})  # where the strategy was chosen here: seconds of an exchange by each way
    after: AfterSwitch | None = None  # where the strategy switches
    alpha_s: float = 0.0  # what this host adds to a message, in the prediction; virtual; 0: not calibrated

    @property
    def order(self) -> Order:
        """The order of the data."""
        return Order(samples=self.train_samples, batch=self.batch, seed=self.seed)

    @property
    def dtype(self) -> str:
        """NumPy's name of the precision."""
        return DTYPES[self.precision]

    @property
    def lengths(self) -> Lengths:
        """Of the messages that nodes send."""
        return _lengths(self.engine, self.transport, self.vector_bytes)

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
    def cost(self) -> Cost:
        """What closed forms need to know of it."""
        return _cost(self.nodes, self.network, self.parameters, self.dtype, self.batch, self.alpha_s, self.lengths)

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


def make_plan(
    trial: Trial,
    run: str,
    engine: EngineName,
    addressing: Addressing,
    question: str = "",
    *,
    dilation: float = 1.0,
    alpha_s: float = 0.0,
) -> Plan:
    """Decide everything about one trial; the same arguments give the same plan.

    It is long because a plan has many fields, and each is decided here, once.

    Args:
        trial: one combination of a scenario.
        run: identifier of the run.
        engine: what will start the nodes.
        addressing: addresses that are free for them.
        question: the scenario's, for the report.
        dilation: where the scenario leaves it to this host.
        alpha_s: wall seconds that this host adds to a message, as calibrated; 0 when it is not known.
    """
    scenario = trial.scenario
    work, workers = scenario.workload, scenario.cluster.workers
    task, samples = posed(work.dataset)
    batch = work.global_batch(workers)
    layout = work.model.layout(task)
    itemsize = int(DTYPES[work.precision].removeprefix("float")) // 8
    steps = work.steps(workers)
    nodes = _nodes(scenario, trial.strategy.server_count, addressing)
    network = _network(scenario, nodes)
    slower = dilation if scenario.dilation == AUTO else scenario.dilation
    cut = _lengths(engine, scenario.transport, layout.size * itemsize)
    cost = _cost(nodes, network, layout.size, DTYPES[work.precision], batch, alpha_s / slower, cut)
    site = _site(scenario, nodes, layout, itemsize, cost)
    strategy = trial.strategy.settled(site, cost)
    predicted = strategy.predict(cost)
    sent = strategy.bytes_per_step(workers, layout.size, DTYPES[work.precision])
    after = _after(strategy, trial, cost, steps)
    predicted_s = _budget_s(predicted, steps, after, batch, workers)
    drawn_s = predicted_s * HORIZON
    return Plan(
        run=run,
        trial=trial.id,
        label=trial.label,
        engine=engine,
        baseline=trial.baseline,
        repeat=trial.repeat,
        seed=trial.seed,
        labels=trial.labels,
        question=question,
        dataset=work.dataset,
        model=work.model,
        optimiser=strategy.optimiser(work.optimiser, workers),
        strategy=strategy,
        precision=work.precision,
        batch=batch,
        epochs=work.epochs,
        target=work.target,
        stop_at_target=work.stop == "target",
        train_samples=samples,
        eval_samples=len(work.dataset.load(DTYPES[work.precision]).test_x),
        steps_per_epoch=work.steps_per_epoch(workers),
        steps=steps,
        parameters=layout.size,
        vector_bytes=layout.size * itemsize,
        workers=workers,
        servers=strategy.server_count,
        nodes=nodes,
        shards=strategy.shards(workers, layout.size),
        holders=strategy.holders(cost.workers, cost.servers),
        schedule=strategy.schedule(workers),
        dilation=slower,
        alpha_s=alpha_s / slower,
        transport=scenario.transport,
        security=scenario.security,
        timeouts=scenario.timeouts,
        fidelity=scenario.fidelity,
        synchronous=strategy.synchronous,
        exchanges_every=strategy.exchanges_every,
        bytes_per_step=_bytes_per_step(sent),
        answered_per_step=_answered_per_step(sent),
        predicted=predicted,
        predicted_s=predicted_s,
        saturates_at=_saturates_at(strategy, cost),
        choices=trial.strategy.choices(site, cost),
        after=after,
        network=network,
        events=decide(scenario.events, steps, drawn_s, trial.seed),
        horizon_s=drawn_s if any(what.at.random for what in scenario.events) else None,
        strict=scenario.strict,
    )


def horizon_s(trial: Trial) -> float:
    """Virtual seconds for which random events are drawn, whatever they are."""
    quiet = trial.model_copy(update={"scenario": trial.scenario.model_copy(update={"events": ()})})
    plan = make_plan(quiet, "", "simulated", Nowhere())
    return plan.predicted_s * HORIZON


def _nodes(scenario: Scenario, servers: int, addressing: Addressing) -> tuple[NodePlan, ...]:
    """The coordinator, the servers, the workers, in the order in which they get their addresses."""
    cluster = scenario.cluster
    coordinator = NodePlan(
        name=COORDINATOR, role="coordinator", rank=0, place=addressing.place(0), memory_bytes=1 << 30, cpus=1.0
    )
    shards = (_server(scenario, rank, addressing.place(1 + rank)) for rank in range(servers))
    workers = (_worker(scenario, rank, addressing.place(1 + servers + rank)) for rank in range(cluster.workers))
    return (coordinator, *shards, *workers)


def _server(scenario: Scenario, rank: int, place: Place) -> NodePlan:
    server = scenario.cluster.server
    return NodePlan(
        name=f"server-{rank}",
        role="ps_shard",
        rank=rank,
        place=place,
        memory_bytes=int(server.memory),
        cpus=server.cpus,
        **_port(server.resolved),
    )


def _worker(scenario: Scenario, rank: int, place: Place) -> NodePlan:
    """Slots are staggered over the workers, so that their mathematics doesn't meet on the host's cores."""
    worker = scenario.worker(rank)
    return NodePlan(
        name=f"worker-{rank}",
        role="worker",
        rank=rank,
        place=place,
        device=worker.device,
        throughput=worker.samples_per_s,
        variation=worker.variation,
        slot=rank / scenario.cluster.workers,
        memory_bytes=int(worker.memory),
        cpus=worker.cpus,
        **_port(worker.resolved),
    )


def _port(port: Port) -> dict[str, Any]:
    """What a node's plan says of its link; delays and losses stand in the paths."""
    buffer_bytes = None if port.buffer is None else int(port.buffer)
    return {"uplink_bps": port.uplink, "downlink_bps": port.downlink, "buffer_bytes": buffer_bytes}


def _network(scenario: Scenario, nodes: Sequence[NodePlan]) -> Network:
    """Pipes and paths between everybody on the data network."""
    members = [node for node in nodes if node.role != "coordinator"]
    cluster = scenario.cluster
    ports = {node.name: cluster.port(node.name) for node in members}
    return resolve(cluster.network, cluster.links, members, ports)


def _site(scenario: Scenario, nodes: Sequence[NodePlan], layout: Layout, itemsize: int, cost: Cost) -> Site:
    """Which workers stand together, how far from each other, and of which arrays the vector is made."""
    ranks = {node.name: node.rank for node in nodes if node.role == "worker"}
    members = [node for node in nodes if node.role != "coordinator"]
    places = scenario.cluster.network.places(members)
    return Site(
        racks=tuple(tuple(ranks[name] for name in place if name in ranks) for place in places),
        tensors=tuple(prod(shape) for _, shape in layout.arrays),
        entry_bytes=itemsize,
        round_trip_bytes=_round_trip_bytes(cost),
    )


def _round_trip_bytes(cost: Cost) -> int:
    """What a worker sends to another until an answer could be back: of the longest way."""
    sent = [(path.delay_s, cost.uplinks_s[path.source]) for path in cost.network.paths if path.source in cost.workers]
    return int(max((2 * delay_s / max(byte_s, FASTEST_S) for delay_s, byte_s in sent), default=0.0))


def _after(strategy: Strategy, trial: Trial, cost: Cost, steps: int) -> AfterSwitch | None:
    """What holds after a switch."""
    if not isinstance(strategy, Switching):
        return None
    work, workers = trial.scenario.workload, len(cost.workers)
    optimiser = strategy.optimiser_after(work.optimiser, workers)
    sent = strategy.sent(strategy.second, workers, cost.entries, cost.dtype)
    shards, slots = strategy.shards(workers, cost.entries), len(optimiser.init(np.zeros(1)).slots)
    return AfterSwitch(
        step=strategy.switch_rule.planned(steps, work.steps_per_epoch(workers)),
        optimiser=optimiser,
        schedule=strategy.second.schedule(workers),
        bytes_per_step=_bytes_per_step(sent),
        answered_per_step=_answered_per_step(sent),
        predicted=strategy.second.predict(cost),
        synchronous=strategy.second.synchronous,
        shares=strategy.shares_after(workers),
        latencies_s=(_latency_s(strategy.first, cost), _latency_s(strategy.second, cost)),
        hand_over_bytes=_bytes_per_step(strategy.hand_over_bytes(workers, shards, slots, cost.dtype)),
    )


def _saturates_at(strategy: Strategy, cost: Cost) -> float | None:
    """By the closed form; of a strategy that switches, of its part that does not go in lockstep.

    Where workers hold shards, more of them are more servers, and no number fills the links of all.
    """
    parts = strategy.parts if isinstance(strategy, Switching) else (strategy,)
    served = [part for part in parts if isinstance(part, ServedStrategy) and not part.synchrony.in_rounds]
    if not served or set(cost.workers) & set(served[0].holders(cost.workers, cost.servers)):
        return None
    found = served[0].saturates_at(cost)
    return found if isfinite(found) else None


def _latency_s(strategy: Strategy, cost: Cost) -> float:
    """What the closed form leaves of an exchange when bytes take no time."""
    free = dict.fromkeys(cost.uplinks_s, 0.0)
    network = cost.network.model_copy(update={"pipes": ()})
    return strategy.predict(
        cost.model_copy(update={"uplinks_s": free, "downlinks_s": free, "network": network})
    ).exchange_s


def _budget_s(predicted: Predicted, steps: int, after: AfterSwitch | None, batch: int, workers: int) -> float:
    """Virtual seconds of a budget of `steps`; with the slower strategy where only losses tell when it switches."""
    shares = apportion(batch, (1,) * workers)
    if after is None:
        return predicted.budget_s(steps, shares)
    left = [share for share in apportion(batch, after.shares) if share]
    if after.step is None:
        return max(predicted.budget_s(steps, shares), after.predicted.budget_s(steps, left))
    return predicted.budget_s(after.step, shares) + after.predicted.budget_s(steps - after.step, left)


def _answered_per_step(sent: Sent) -> dict[str, float]:
    """Of the payload bytes per worker and step, those that answer others' steps."""
    return {f"worker-{rank}": count for rank, count in enumerate(sent.answers)}


def _bytes_per_step(sent: Sent) -> dict[str, float]:
    """Payload bytes per node and step."""
    by_worker = {f"worker-{rank}": count for rank, count in enumerate(sent.workers)}
    return by_worker | {f"server-{rank}": count for rank, count in enumerate(sent.servers)}


def _lengths(engine: EngineName, transport: TransportName, vector_bytes: int) -> Lengths:
    """Where the kernel does not shape links, messages are short, to share them well."""
    shared, planes = quantum_bytes(vector_bytes), {"grpc": GRPC, "tcp": TCP}
    if engine == "simulated":
        return Lengths(shared, QUANTUM_BYTES)
    return planes[transport]._replace(largest=shared) if engine == "local" else planes[transport]


def _cost(
    nodes: Sequence[NodePlan], network: Network, entries: int, dtype: str, batch: int, alpha_s: float, cut: Lengths
) -> Cost:
    """What the closed forms need.

    Nothing is declared about the time per message. What this host adds is in it when it was calibrated, and is not
    guessed otherwise: it shows as the remainder between measured and predicted.
    """
    workers = [node for node in nodes if node.role == "worker"]
    shares = apportion(batch, (1,) * len(workers))
    times = zip(shares, workers, strict=True)
    computes_s = tuple(share / node.throughput if node.throughput else 0.0 for share, node in times)
    return Cost(
        workers=tuple(node.name for node in workers),
        servers=tuple(node.name for node in nodes if node.role == "ps_shard"),
        entries=entries,
        dtype=dtype,
        alpha_s=alpha_s,
        lengths=cut,
        uplinks_s={node.name: 1 / goodput(node.uplink_bps) for node in nodes},
        downlinks_s={node.name: 1 / goodput(node.downlink_bps) for node in nodes},
        network=network,
        compute_s=max((max(shares) / node.throughput for node in workers if node.throughput), default=0.0),
        computes_s=computes_s,
        variations=tuple(node.variation for node in workers),
    )
