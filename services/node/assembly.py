"""What is a node made of? Puts the parts of each role together, from the plan and the seams that an engine gives."""

import asyncio
import platform
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from services.cluster.events import Pause
from services.cluster.link_conditions import Conditions
from services.coordinator.machine import Run
from services.coordinator.runtime import Desk
from services.coordinator.switchover import Switchover
from services.learning.data_order import apportion
from services.node.event_runner import Timeline
from services.parameter_server.update_rules import UpdateRule
from services.plan import COORDINATOR, NodePlan, Plan
from services.ps_shard.hand_over import Switched
from services.ps_shard.loop import UPDATE_COLUMNS, Server
from services.ps_shard.machine import Shard
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient, FinalState
from services.runtime.core_share import CoreShare
from services.runtime.device import Device, select_device
from services.runtime.host_facts import describe_allocator
from services.runtime.pacing import DevicePacer, HostSpeedPacer, Pacer, constant_duration_factor
from services.runtime.run_log import EventBatch, RunLog
from services.runtime.scheduling import read_time_slice_ns
from services.runtime.slowdowns import WorkerSlowdowns
from services.runtime.transport import Transport
from services.schema.errors import ProtocolError
from services.strategies import PhaseStrategy, WorkerContext
from services.strategies.switching.hand_over import HandOverTimeout
from services.transport.loopback import SelfDeliveryTransport
from services.transport.mailbox import Mailbox
from services.transport.pausing import PausableTransport
from services.worker.hand_over import HandOver
from services.worker.loop import Phase, Worker


@dataclass(frozen=True)
class Seams:
    """What an engine gives a node: the outside world."""

    transport: Transport
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    interface_bytes: Callable[[], int | None]  # that the shaped network's interface has sent; None: can't be known
    core_share: Callable[[], CoreShare | None]  # of the host that this process gets; None: it shares everything
    conditions: Conditions | None = None  # of links, where the transport enforces them


async def run_worker(plan: Plan, me: NodePlan, seams: Seams) -> None:
    """A worker's life."""
    device = select_device(me.device)
    timeline = _timeline(plan, me, seams)
    transport = _transport(plan, me, seams, timeline.hindrances)
    worker = _worker(plan, me, device, seams, timeline, transport())
    server = _server(plan, me, transport(), seams) if me.name in plan.holders else None
    facts = {"device": device.name, "device_model": device.description, "device_reason": device.reason}
    _log_start(seams.log, **facts, **_core(seams.core_share()))
    await worker.warm_up()
    await seams.transport.connect(sorted({*_partners(worker), *(server.workers if server else ())} - {me.name}))
    zero = await seams.control.join()
    before = seams.interface_bytes()
    async with timeline.since(zero):
        async with asyncio.TaskGroup() as group:
            training = group.create_task(worker.train())
            served = group.create_task(_serve(plan, me, server, seams, training)) if server else None
        await seams.control.leave(served.result() if served else FinalState())
    tally = worker.tally
    _log_stop(seams, before, steps=tally.steps, deadlines=tally.deadlines, missed_deadlines=tally.missed)


def _partners(worker: Worker) -> tuple[str, ...]:
    """Whom a worker sends to, before and after a switch."""
    algorithms = [worker.algorithm, *([worker.switch.after] if worker.switch else ())]
    return tuple(dict.fromkeys(name for algorithm in algorithms for name in algorithm.send_targets))


async def run_server(plan: Plan, me: NodePlan, seams: Seams) -> None:
    """A server's life."""
    server = _server(plan, me, seams.transport, seams)
    _log_start(seams.log, device="cpu", device_reason="servers sum in host memory")
    await seams.transport.connect(server.workers)
    zero = await seams.control.join()
    before = seams.interface_bytes()
    async with _timeline(plan, me, seams).since(zero):
        final = await _serve(plan, me, server, seams)
    _log_stop(seams, before, deadlines=0, missed_deadlines=0)
    await seams.control.leave(final)


async def _serve(plan: Plan, me: NodePlan, server: Server, seams: Seams, *beside: asyncio.Task[None]) -> FinalState:
    """A server's work, under one strategy or two; `beside` is that of the worker in its process."""
    switch = plan.strategy.phases().switch
    if switch is None or plan.after is None:
        await server.serve()
        return server.final
    begin = partial(serving, plan, me, server.transport, seams)
    limit = HandOverTimeout(seams.clock, plan.timeouts.step)
    switched = Switched(
        me.name, switch, plan.after.optimiser, server, plan.holders, begin, seams.control, limit, beside
    )
    await switched.live()
    return switched.server.final


def coordinator(plan: Plan, clock: Clock, log: RunLog) -> Desk:
    """The coordinator's desk; it has logged what is known before a run starts."""
    _log_init(plan, log)
    machine = Run(
        nodes=frozenset(node.name for node in plan.nodes if node.name != COORDINATOR),
        workers=tuple(node.name for node in plan.of_role("worker")),
        epochs=plan.epochs,
        lockstep=plan.synchronous,
        target=plan.target if plan.stop_at_target else None,
        plan_sha256=plan.sha256,
        switch=_switchover(plan),
    )
    return Desk(plan, machine, plan.dataset.load(plan.dtype), clock, log)


def _switchover(plan: Plan) -> Switchover | None:
    switch = plan.strategy.phases().switch
    if switch is None:
        return None
    return Switchover(switch, tuple(node.name for node in plan.of_role("worker")), plan.holders)


def _timeline(plan: Plan, me: NodePlan, seams: Seams) -> Timeline:
    return Timeline(plan, me, seams.control, seams.clock, seams.log, seams.conditions)


def _worker(plan: Plan, me: NodePlan, device: Device, seams: Seams, timeline: Timeline, transport: Transport) -> Worker:
    context = WorkerContext(
        rank=me.rank,
        workers=tuple(node.name for node in plan.of_role("worker")),
        shard_owners=plan.holders,
        shards=plan.shards,
        schedule=plan.schedule,
        optimiser=plan.optimiser,
        device=device,
        transport=transport,
        batch_size=lambda step: len(plan.order.batch_indices(step)),
    )
    data, pace = plan.dataset.load(plan.dtype), _pace(plan, me, seams.clock, timeline.hindrances)
    phases, hand_over = plan.strategy.phases(), None
    algorithm = phases.first.worker_algorithm(context)
    if phases.switch and plan.after:
        after = replace(context, optimiser=plan.after.optimiser, schedule=plan.after.schedule)
        second = phases.switch.second.worker_algorithm(after)
        limit = HandOverTimeout(seams.clock, plan.timeouts.step)
        hand_over = HandOver(me.name, phases.switch, algorithm, second, plan.after.shares, seams.control, limit)
    phase, begins = Phase(algorithm, plan.synchronous, (1,) * plan.workers), timeline.step_begins
    return Worker(plan, me, phase, data, pace, seams.control, seams.clock, seams.log, begins, hand_over)


def _transport(plan: Plan, me: NodePlan, seams: Seams, hindrances: WorkerSlowdowns) -> Callable[[], Transport]:
    """What each part of a worker's process gets: the network sees its pauses, nobody what it sends to itself."""
    pauses = any(isinstance(event.what, Pause) and me.name in event.what.nodes for event in plan.events)
    transport = PausableTransport(seams.transport, seams.clock, hindrances) if pauses else seams.transport
    if me.name not in plan.holders:
        return lambda: transport
    mailbox = Mailbox(plan.patience_s, seams.clock.to_wall_s(1.0))
    return lambda: SelfDeliveryTransport(transport, me.name, mailbox)


def _pace(plan: Plan, me: NodePlan, clock: Clock, hindrances: WorkerSlowdowns) -> Pacer:
    if me.throughput is None:
        return HostSpeedPacer(clock, hindrances)
    factor = partial(me.variation.factor, plan.seed, me.rank) if me.variation else constant_duration_factor
    return DevicePacer(clock, me.throughput, me.slot, factor, hindrances)


def _server(plan: Plan, me: NodePlan, transport: Transport, seams: Seams) -> Server:
    """The server of the shard that lives on this node, in a process of its own or beside a worker."""
    phase = plan.strategy.phases().phase_with_servers
    algorithm = phase.server_algorithm() if phase else None
    if phase is None or algorithm is None or me.name not in plan.holders:
        raise ProtocolError(f"{plan.strategy.kind} has no shard for {me.name}")
    task = plan.dataset.load(plan.dtype).task
    shard = plan.shards[plan.holders.index(me.name)]
    params = shard.view(plan.model.init(task, plan.seed, plan.dtype))
    rule = algorithm.make_update_rule(plan.optimiser, params, plan.workers)
    return serving(plan, me, transport, seams, phase, rule)


def serving(
    plan: Plan,
    me: NodePlan,
    transport: Transport,
    seams: Seams,
    phase: PhaseStrategy,
    rule: UpdateRule,
    version: int = 0,
    samples: int = 0,
) -> Server:
    """The server on this node in `phase`, of the parameters (and the optimiser's state) in `rule`.

    It may begin where another strategy has left off: at `version`, when `samples` samples have gone into them.
    """
    algorithm = phase.server_algorithm()
    if algorithm is None:
        raise ProtocolError(f"{phase.kind} has no servers")
    return Server(
        workers=tuple(node.name for node in plan.of_role("worker")),
        rule=rule,
        compressor=algorithm.compressor,
        machine=Shard(
            plan.workers,
            algorithm.synchroniser,
            algorithm.staleness_weighting,
            version,
            samples,
            budget=None if phase.phase_traits().is_synchronous else plan.epochs * plan.train_samples,
            shares=_first_shares(plan, algorithm.computing_workers(plan.workers), phase.phase_traits().exchange_period),
        ),
        transport=transport,
        clock=seams.clock,
        number=plan.holders.index(me.name),
        updates=EventBatch(seams.log, "shard_updates", UPDATE_COLUMNS),
        drops=EventBatch(seams.log, "shard_drops", UPDATE_COLUMNS),
    )


def _first_shares(plan: Plan, ranks: int, exchange_period: int) -> dict[int, int]:
    """Samples in the first push of every rank that computes; batches that end an epoch may be small."""
    order = plan.order
    sizes = Counter(order.samples_before(step + 1) - order.samples_before(step) for step in range(exchange_period))
    shares = {size: apportion(size, (1,) * ranks) for size in sizes}
    return {rank: sum(shares[size][rank] * steps for size, steps in sizes.items()) for rank in range(ranks)}


def _core(share: CoreShare | None) -> dict[str, float | None]:
    """What a node says of its share of a core; a quota is judged by it."""
    return share._asdict() if share else dict.fromkeys(CoreShare._fields)


def _log_start(log: RunLog, **facts: object) -> None:
    process = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "slice_ns": read_time_slice_ns(),
        "allocator": describe_allocator(),
    }
    log.log_event("node_start", process | facts)


def _log_stop(seams: Seams, interface_before: int | None, **facts: object) -> None:
    """What the node has sent and used; interface bytes include headers, acknowledgements and retransmissions."""
    traffic, after = seams.transport.traffic, seams.interface_bytes()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    sent = None if after is None or interface_before is None else after - interface_before
    value = {
        "payload_bytes_sent": traffic.payload_bytes,
        "framing_bytes_sent": traffic.framing_bytes,
        "messages_sent": traffic.messages,
        "interface_bytes_sent": sent,
        "peers": traffic.payload_bytes_by_peer,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        **facts,
    }
    seams.log.log_event("node_stop", value)


def _log_init(plan: Plan, log: RunLog) -> None:
    """The keys that MLCommons' checker wants of a run before it starts."""
    log.log_event("cache_clear", value=True)
    log.log_start("init_start")
    for key, value in _description(plan).items():
        log.log_event(key, value)


def _description(plan: Plan) -> dict[str, object]:
    """What is trained and how, in MLPerf's keys."""
    return {
        "submission_org": "ensayo",
        "submission_platform": f"{plan.engine} engine, emulated",
        "submission_division": "open",
        "submission_status": "research",
        "submission_benchmark": plan.dataset.kind,
        "submission_poc_name": plan.trial,
        "config_filename": "plan.json",
        "seed": plan.seed,
        "global_batch_size": plan.batch,
        "micro_batch_size": plan.batch // plan.workers,
        "gradient_accumulation_steps": 1,
        "train_samples": plan.train_samples,
        "eval_samples": plan.eval_samples,
        "number_of_nodes": len(plan.nodes) - 1,
        "accelerators_per_node": 1,
        "opt_name": plan.optimiser.kind,
        "opt_base_learning_rate": plan.optimiser.rate,
        "lowest_numerical_precision_in_linear": plan.precision,
        "lowest_numerical_precision_in_attn": plan.precision,
        "lowest_numerical_precision_in_comm": _precision_in_comm(plan),
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
    }


def _precision_in_comm(plan: Plan) -> str:
    """What gradients look like on the wire, in MLPerf's words."""
    kind = plan.strategy.phases().first.phase_traits().compressor.kind
    return plan.precision if kind == "identity" else kind
