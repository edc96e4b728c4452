"""Can this host carry a scenario, and if not: how much slower must everything be?

A trial fits under a dilation D when every shaped rate over D is one that this host keeps, all links together stay
below what it moves, and the CPU time of a step is at most 40 % of what the cores have meanwhile; that of the workers'
mathematics also of what they have while the declared devices compute. Up to there, paced workers keep their deadlines
within 2 to 3 % (16 workers of 1 ms in steps of 20 ms on two cores); beyond, they don't.

Where the dilation is left to this host, it is also large enough for messages and updates to cost next to nothing: what
the cores need for them is a tenth of the step. They seldom hide behind the time that links take: a ring of eight at
25 Gbit/s and a dilation of 24, whose links took as long as the cores, made steps 1.9 times as long. Where workers wait
for nobody, messages of some come while others compute: of phases of 20 ms on the wall 1.5 % ended late then, of those
of 40 ms 0.2 to 0.7 % (eight workers on two cores), so these are the shortest.
"""

from collections.abc import Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple

from pydantic import Field

from compose.calibration.capacity import HostCapacity
from compose.host.compute_speed import Mathematics
from services.cluster.events import LinkChange
from services.collectives import Schedule
from services.learning.data_order import apportion
from services.plan import NodePlan, Plan, SecondPhase
from services.runtime.pacing import MAX_LATE_STEP_SHARE
from services.scenario.scenario import AUTO, Scenario
from services.schema.component import FrozenRecord
from services.schema.errors import UserError
from services.strategies.cost_model import Flow

LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CPU_SHARE, HOST_SHARE = 0.4, 0.1
APART_S = 0.04  # on the wall: the shortest phase of who waits for nobody
OWN_SHARE = 0.8  # of a core, for one worker
SLACK = 1e-9  # rounding


class Demand(FrozenRecord):
    """What a trial wants of this host, as the dilation that each want needs."""

    trial: str
    declared: float | None  # dilation; None: auto
    needs: dict[str, float]  # what is wanted, in words -> the dilation from which on this host can give it
    wishes: dict[str, float] = Field(
        default={}
    )  # the same of what makes steps precise: for auto, no reason to refuse a dilation
    mathematics_s: float  # measured CPU time of one gradient, wall
    cpu_s: float  # of a step, all nodes together, wall
    messages: int  # per step

    @property
    def wants(self) -> dict[str, float]:
        """All that decides on the dilation."""
        return self.needs | (self.wishes if self.declared is None else {})

    @property
    def binding(self) -> str:
        """The want that needs the most."""
        return max(self.wants, key=self.wants.__getitem__, default="nothing that this host lacks")

    @property
    def dilation(self) -> float:
        """The least of the usual dilations that fits."""
        least = max(self.wants.values(), default=1.0)
        return next((float(step) for step in LADDER if step >= least - SLACK), inf)

    @property
    def refused(self) -> bool:
        """Whether the declared dilation is too small."""
        return self.declared is not None and self.declared < max(self.needs.values(), default=1.0) - SLACK


class Phase(NamedTuple):
    """The mathematics of one paced worker in one step."""

    cpu_s: float
    device_s: float  # as declared, virtual


class Load(NamedTuple):
    """What one step asks of this host."""

    messages: int
    phases: tuple[Phase, ...]  # of workers on a CPU
    beside_s: float  # CPU seconds of messages, sums and updates, all nodes together
    step_s: float  # predicted, virtual
    apart: bool  # workers don't wait for each other

    @property
    def cpu_s(self) -> float:
        """Of all nodes."""
        return self.beside_s + sum(each.cpu_s for each in self.phases)

    @property
    def step(self) -> str:
        """In words."""
        return f"a step of {1e3 * self.step_s:.3g} ms"

    @property
    def phase(self) -> str:
        """That of the worker whose device is the fastest against this host, in words."""
        cpu_s, device_s = max(self.phases, key=lambda phase: phase.cpu_s / phase.device_s)
        others = f" of one of {len(self.phases)} workers" if len(self.phases) > 1 else ""
        return f"{1e3 * cpu_s:.3g} ms of mathematics in {1e3 * device_s:.3g} ms{others}"

    def pressure(self, cores: int) -> float:
        """The dilation from which on the mathematics fits into what the devices take, and what may be late in a step.

        Nobody computes on more than one core.
        """
        spare_s = MAX_LATE_STEP_SHARE * self.step_s
        each = [phase.cpu_s / (phase.device_s + spare_s) for phase in self.phases]
        return max(sum(each) / (CPU_SHARE * cores), max(each) / OWN_SHARE)


class Admission(FrozenRecord):
    """What was decided about a run before it started."""

    capacity: HostCapacity | None  # None: virtual time needs none
    dilation: float  # of trials that leave it to this host
    demands: tuple[Demand, ...]

    @property
    def alpha_s(self) -> float:
        """Wall seconds per message for predictions; 0 when nothing was measured."""
        return self.capacity.alpha_s if self.capacity and self.capacity.calibrated else 0.0

    @property
    def binding(self) -> Demand | None:
        """The demand that sets the dilation."""
        return max(self.demands, key=lambda demand: max(demand.wants.values(), default=0.0), default=None)


def admit(scenario: Scenario, plans: Sequence[Plan], capacity: HostCapacity, mathematics: Mathematics) -> Admission:
    """Decide on the plans of a scenario, made with a dilation of 1 where it is left to this host.

    Raises:
        UserError: a trial does not fit; names what is too much and the dilation that would do.
    """
    auto = [trial.scenario.dilation == AUTO for trial in scenario.trials()]
    demands = tuple(
        demand(plan, capacity, mathematics, declared=None if free else plan.dilation)
        for plan, free in zip(plans, auto, strict=True)
    )
    free = [each.dilation for each in demands if each.declared is None]
    if impossible := [each for each in demands if each.dilation == inf]:
        raise UserError(_impossible(impossible[0], capacity))
    if refused := [each for each in demands if each.refused]:
        raise UserError(_refusal(max(refused, key=lambda each: each.dilation), capacity))
    return Admission(capacity=capacity, dilation=max(free, default=1.0), demands=demands)


def demand(plan: Plan, capacity: HostCapacity, mathematics: Mathematics, declared: float | None) -> Demand:
    """What one trial wants, whatever its dilation."""
    paced = [node for node in plan.nodes_of_role("worker") if node.throughput]
    loads = [_load(plan, part, capacity, mathematics) for part in _strategies(plan)]
    needs = {what: rate_bps / capacity.shaped_bps for what, rate_bps in _shaped(plan)}
    if total_bps := _total_bps(plan):
        needs[f"all links together, {_gbit(total_bps)}"] = total_bps / capacity.total_bps
    wishes: dict[str, float] = {}
    cores = capacity.fingerprint.cores
    for load in loads if paced else ():
        _want(wishes, f"{load.messages} messages in {load.step}", load.beside_s / cores / (HOST_SHARE * load.step_s))
        cores_s = CPU_SHARE * cores * load.step_s
        _want(needs, f"{load.step} with {1e3 * load.cpu_s:.3g} ms of CPU on {cores} cores", load.cpu_s / cores_s)
        if load.phases:
            _want(needs, load.phase, load.pressure(cores))
        if load.phases and load.apart:
            shortest_s = min(phase.device_s for phase in load.phases)
            _want(wishes, f"phases of {1e3 * shortest_s:.3g} ms of who waits for nobody", APART_S / shortest_s)
    most = max(loads, key=lambda load: load.cpu_s)
    return Demand(
        trial=plan.trial,
        declared=declared,
        needs=needs,
        wishes=wishes,
        mathematics_s=max((phase.cpu_s for load in loads for phase in load.phases), default=0.0),
        cpu_s=most.cpu_s,
        messages=most.messages,
    )


def _want(wants: dict[str, float], what: str, dilation: float) -> None:
    """Where two strategies of a trial want the same in words, the one that needs more decides."""
    wants[what] = max(dilation, wants.get(what, 0.0))


def _shaped(plan: Plan) -> Iterator[tuple[str, float]]:
    """Every rate that is declared, as far as the other ends of its link can use it; virtual bit/s."""
    up, down = ({node.name: _most(plan, node, which) for node in plan.nodes} for which in ("uplink", "downlink"))
    flows = [flow for phase in _phases(plan) for flow in phase]
    for name in up:
        into = {source for source, target in flows if target == name}
        out = {target for source, target in flows if source == name}
        for what, rate, others in (
            ("uplink", up[name], sum(down[other] for other in out)),
            ("downlink", down[name], sum(up[other] for other in into)),
        ):
            if rate < inf and others:
                yield f"{name}'s {what} of {_gbit(rate)}", min(rate, others)
    for pipe in plan.network.shared_links:
        sources = {flow[0] for flow in flows if pipe.carries(*flow)}
        if sources:
            yield f"{pipe.name} of {_gbit(pipe.rate_bps)}", min(pipe.rate_bps, sum(up[name] for name in sources))


def _most(plan: Plan, node: NodePlan, which: str) -> float:
    """The largest rate of a node's link in a trial, events included; infinite where it is not shaped."""
    declared = node.uplink_bps if which == "uplink" else node.downlink_bps
    changes = (event.change for event in plan.events if isinstance(event.change, LinkChange))
    raised = (getattr(what, which) or 0.0 for what in changes if node.name in what.of)
    return inf if declared is None else max((declared, *raised))


def _phases(plan: Plan) -> tuple[list[Flow], ...]:
    """Who sends to whom at once."""
    workers = plan.cost_model.workers
    up = list(plan.push_flows)
    rounds = [
        [(workers[source], workers[target]) for source, target in sorted(schedule.edges)]
        for schedule in dict.fromkeys(part.schedule for part in _strategies(plan))
    ]
    return tuple(phase for phase in (*rounds, up, [(server, worker) for worker, server in up]) if phase)


def _strategies(plan: Plan) -> tuple[Plan | SecondPhase, ...]:
    """What holds under each strategy of a trial: two where one gives way to another."""
    return (plan, plan.second_phase) if plan.second_phase else (plan,)


def _total_bps(plan: Plan) -> float:
    """Virtual bit/s of all links together while the network is the bottleneck; 0 when nothing is shaped."""
    seconds = ((phase, plan.cost_model.concurrent_transfer_s(phase, 1.0)) for phase in _phases(plan))
    return max((8 * len(phase) / taken for phase, taken in seconds if taken), default=0.0)


def _load(plan: Plan, part: Plan | SecondPhase, capacity: HostCapacity, mathematics: Mathematics) -> Load:
    """A step under one strategy."""
    phases = tuple(_computed(plan, part, mathematics))
    size_bytes = sum(part.bytes_per_step.values())
    messages = _messages(plan, part.schedule, size_bytes)
    messages_s = messages * capacity.message_cpu_s + size_bytes * (capacity.byte_cpu_s + capacity.sum_s)
    updates = _updates(plan, part, len(phases))
    update_s = mathematics.update_s(plan.dataset, plan.model, plan.dtype, part.optimiser) if updates else 0.0
    predicted = part.predicted
    return Load(messages, phases, messages_s + updates * update_s, predicted.step_s, apart=bool(predicted.steps_s))


def _updates(plan: Plan, part: Plan | SecondPhase, replicas: int) -> float:
    """How often a step of all workers updates the parameters on a CPU: every replica, or the servers together."""
    first, *second = plan.strategy.phases()
    phase = second[0] if isinstance(part, SecondPhase) else first
    algorithm = phase.server_algorithm()
    if algorithm is None or phase.phase_traits().workers_run_optimiser:
        return replicas
    if algorithm.synchroniser.runs_in_rounds:
        return 1
    return algorithm.computing_workers(plan.workers) / algorithm.gradients_per_update(plan.workers)


def _computed(plan: Plan, part: Plan | SecondPhase, mathematics: Mathematics) -> Iterator[Phase]:
    """What paced workers compute in a step, without those that have a GPU or no share of the batch."""
    shares = part.worker_weights if isinstance(part, SecondPhase) else (1,) * plan.workers
    for node, share in zip(plan.nodes_of_role("worker"), apportion(plan.batch, shares), strict=True):
        if node.throughput and share and node.device != "cuda":
            cpu_s = mathematics.gradient_s(plan.dataset, plan.model, plan.dtype, share)
            yield Phase(cpu_s, share / node.throughput)


def _messages(plan: Plan, schedule: Schedule, size_bytes: float) -> int:
    """Messages of one step, pieces of long ones counted; where the transport shapes links it cuts finer.

    Those of an exchange are spread over the steps up to the next one.
    """
    piece_bytes = schedule.piece_bytes(plan.vector_bytes, *plan.message_lengths)
    whole = sum(schedule.count_transfers_from(rank) for rank in range(plan.workers)) or 2 * len(plan.push_flows)
    pieces = ceil(size_bytes * plan.exchange_period / whole / piece_bytes) if whole else 0
    return ceil(whole * pieces / plan.exchange_period)


def _refusal(demanded: Demand, capacity: HostCapacity) -> str:
    return (
        f"dilation {demanded.declared:g} is too small for this host: {demanded.trial} wants {demanded.binding}, "
        f"which it can give from {demanded.needs[demanded.binding]:.2g} on ({capacity.provenance}); "
        f"write dilation: {demanded.dilation:g}, or auto, or take --engine simulated"
    )


def _impossible(demanded: Demand, capacity: HostCapacity) -> str:
    return (
        f"no dilation up to {LADDER[-1]} is enough for this host: {demanded.trial} wants {demanded.binding} "
        f"({capacity.provenance}); take --engine simulated"
    )


def _gbit(rate_bps: float) -> str:
    return f"{rate_bps / 1e9:.3g} Gbit/s"


def unbounded() -> Admission:
    """Virtual time carries everything."""
    return Admission(capacity=None, dilation=1.0, demands=())
