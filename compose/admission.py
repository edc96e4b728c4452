"""Can this host carry a scenario, and if not: how much slower must everything be?

A trial fits under a dilation D when every shaped rate over D is one that this host keeps, all links together stay
below what it moves, and the CPU time of a step is at most 40 % of what the cores have meanwhile. Up to there, paced
workers keep their deadlines within 2 to 3 % (16 workers of 1 ms in steps of 20 ms on two cores); beyond, they don't.

Where the dilation is left to this host, it is also large enough for messages to cost next to nothing: what the cores
need for them is a tenth of the step. They seldom hide behind the time that links take: a ring of eight at 25 Gbit/s and
a dilation of 24, whose links took as long as the cores, made steps 1.9 times as long.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import ceil, inf
from statistics import median
from typing import NamedTuple

from pydantic import Field
from threadpoolctl import threadpool_limits

from compose.capacity import Capacity
from services.collectives import Schedule
from services.component import Record
from services.data import apportion
from services.datasets import AnyDataset
from services.errors import UserError
from services.models import AnyModel
from services.plan import AfterSwitch, NodePlan, Plan
from services.scenario import AUTO, Scenario
from services.strategies.base import Flow
from services.timeline import LinkChange
from services.transport.planes import PLANES

LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CPU_SHARE, HOST_SHARE = 0.4, 0.1
REPEATS, WARM_UPS = 5, 2
SLACK = 1e-9  # rounding

Mathematics = Callable[[AnyDataset, AnyModel, str, int], float]  # CPU seconds of one gradient


class Demand(Record):
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


class Load(NamedTuple):
    """What one step asks of this host."""

    messages: int
    cpu_s: float  # of all nodes
    step_s: float  # predicted, virtual

    @property
    def step(self) -> str:
        """In words."""
        return f"a step of {1e3 * self.step_s:.3g} ms"


class Admission(Record):
    """What was decided about a run before it started."""

    capacity: Capacity | None  # None: virtual time needs none
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


def admit(scenario: Scenario, plans: Sequence[Plan], capacity: Capacity, mathematics: Mathematics) -> Admission:
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


def demand(plan: Plan, capacity: Capacity, mathematics: Mathematics, declared: float | None) -> Demand:
    """What one trial wants, whatever its dilation."""
    paced = [node for node in plan.of_role("worker") if node.throughput]
    share = max(apportion(plan.batch, (1,) * plan.workers))
    on_cpu = sum(node.device != "cuda" for node in paced)
    mathematics_s = mathematics(plan.dataset, plan.model, plan.dtype, share) if on_cpu else 0.0
    loads = [_load(plan, part, capacity, on_cpu * mathematics_s) for part in _strategies(plan)]
    needs = {what: rate_bps / capacity.shaped_bps for what, rate_bps in _shaped(plan)}
    if total_bps := _total_bps(plan):
        needs[f"all links together, {_gbit(total_bps)}"] = total_bps / capacity.total_bps
    wishes, cores = {}, capacity.fingerprint.cores
    for load in loads if paced else ():
        messages_s = (load.cpu_s - on_cpu * mathematics_s) / cores
        wishes[f"{load.messages} messages in {load.step}"] = messages_s / (HOST_SHARE * load.step_s)
        cores_s = CPU_SHARE * cores * load.step_s
        needs[f"{load.step} with {1e3 * load.cpu_s:.3g} ms of CPU on {cores} cores"] = load.cpu_s / cores_s
    most = max(loads, key=lambda load: load.cpu_s)
    return Demand(
        trial=plan.trial,
        declared=declared,
        needs=needs,
        wishes=wishes,
        mathematics_s=mathematics_s,
        cpu_s=most.cpu_s,
        messages=most.messages,
    )


@cache
def gradient_s(dataset: AnyDataset, model: AnyModel, dtype: str, samples: int) -> float:
    """CPU seconds that this host needs for one gradient of so many samples, on one thread as in nodes: the median."""
    data = dataset.load(dtype)
    params, taken = model.init(data.task, 1, dtype), []
    with threadpool_limits(1):
        for _ in range(WARM_UPS + REPEATS):
            started = time.thread_time()
            model.loss_and_grad(data.task, params, data.train_x[:samples], data.train_y[:samples])
            taken.append(time.thread_time() - started)
    return median(taken[WARM_UPS:])


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
    for pipe in plan.network.pipes:
        sources = {flow[0] for flow in flows if pipe.carries(*flow)}
        if sources:
            yield f"{pipe.name} of {_gbit(pipe.rate_bps)}", min(pipe.rate_bps, sum(up[name] for name in sources))


def _most(plan: Plan, node: NodePlan, which: str) -> float:
    """The largest rate of a node's link in a trial, events included; infinite where it is not shaped."""
    declared = node.uplink_bps if which == "uplink" else node.downlink_bps
    changes = (event.what for event in plan.events if isinstance(event.what, LinkChange))
    raised = (getattr(what, which) or 0.0 for what in changes if node.name in what.of)
    return inf if declared is None else max((declared, *raised))


def _phases(plan: Plan) -> tuple[list[Flow], ...]:
    """Who sends to whom at once."""
    workers = plan.cost.workers
    up = list(plan.pushes)
    rounds = [
        [(workers[source], workers[target]) for source, target in sorted(schedule.edges)]
        for schedule in dict.fromkeys(part.schedule for part in _strategies(plan))
    ]
    return tuple(phase for phase in (*rounds, up, [(server, worker) for worker, server in up]) if phase)


def _strategies(plan: Plan) -> tuple[Plan | AfterSwitch, ...]:
    """What holds under each strategy of a trial: two where one gives way to another."""
    return (plan, plan.after) if plan.after else (plan,)


def _total_bps(plan: Plan) -> float:
    """Virtual bit/s of all links together while the network is the bottleneck; 0 when nothing is shaped."""
    seconds = ((phase, plan.cost.together_s(phase, 1.0)) for phase in _phases(plan))
    return max((8 * len(phase) / taken for phase, taken in seconds if taken), default=0.0)


def _load(plan: Plan, part: Plan | AfterSwitch, capacity: Capacity, mathematics_s: float) -> Load:
    """A step under one strategy; `mathematics_s` are CPU seconds of all workers."""
    size_bytes = sum(part.bytes_per_step.values())
    messages = _messages(plan, part.schedule, size_bytes)
    cpu_s = mathematics_s + messages * capacity.message_cpu_s
    return Load(messages, cpu_s + size_bytes * (capacity.byte_cpu_s + capacity.sum_s), part.predicted.step_s)


def _messages(plan: Plan, schedule: Schedule, size_bytes: int) -> int:
    """Messages of one step, pieces of long ones counted; where the transport shapes links it cuts finer."""
    plane = PLANES[plan.transport]
    piece_bytes = plan.piece_bytes if plan.engine == "local" else plane.largest
    piece_bytes = schedule.piece_bytes(plan.vector_bytes, piece_bytes, plane.finest)
    whole = sum(schedule.sends(rank) for rank in range(plan.workers)) or 2 * len(plan.pushes)
    return whole * ceil(size_bytes / whole / piece_bytes) if whole else 0


def _refusal(demanded: Demand, capacity: Capacity) -> str:
    return (
        f"dilation {demanded.declared:g} is too small for this host: {demanded.trial} wants {demanded.binding}, "
        f"which it can give from {demanded.needs[demanded.binding]:.2g} on ({capacity.told}); "
        f"write dilation: {demanded.dilation:g}, or auto, or take --engine simulated"
    )


def _impossible(demanded: Demand, capacity: Capacity) -> str:
    return (
        f"no dilation up to {LADDER[-1]} is enough for this host: {demanded.trial} wants {demanded.binding} "
        f"({capacity.told}); take --engine simulated"
    )


def _gbit(rate_bps: float) -> str:
    return f"{rate_bps / 1e9:.3g} Gbit/s"


def unbounded() -> Admission:
    """Virtual time carries everything."""
    return Admission(capacity=None, dilation=1.0, demands=())
