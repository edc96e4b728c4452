"""What is a node made of? Puts the parts of each role together, from the plan and the seams that an engine gives."""

import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from services.clock import Clock
from services.conditions import Conditions
from services.control import Control, Final
from services.coordinator.desk import Desk
from services.coordinator.machine import Run
from services.device import Device, select
from services.errors import ProtocolError
from services.hindrances import Hindrances
from services.kernel import Share
from services.pacing import HostSpeed, Pace, Paced, as_declared
from services.plan import COORDINATOR, NodePlan, Plan
from services.playing import Timeline
from services.ps_shard.loop import UPDATE_COLUMNS, Server
from services.ps_shard.machine import Shard
from services.runlog import Batch, RunLog
from services.scheduling import slice_ns
from services.strategies import ParameterServer, Peer
from services.timeline import Pause
from services.transport.base import Transport
from services.transport.pausing import PausingTransport
from services.worker.loop import Worker


@dataclass(frozen=True)
class Seams:
    """What an engine gives a node: the outside world."""

    transport: Transport
    control: Control
    clock: Clock
    log: RunLog
    interface_bytes: Callable[[], int | None]  # that the shaped network's interface has sent; None: can't be known
    core_share: Callable[[], Share | None]  # of the host that this process gets; None: it shares everything
    conditions: Conditions | None = None  # of links, where the transport enforces them


async def run_worker(plan: Plan, me: NodePlan, seams: Seams) -> None:
    """A worker's life."""
    device = select(me.device)
    timeline = _timeline(plan, me, seams)
    worker = _worker(plan, me, device, seams, timeline)
    facts = {"device": device.name, "device_model": device.description, "device_reason": device.reason}
    _log_start(seams.log, **facts, **_core(seams.core_share()))
    await worker.warm_up()
    await seams.transport.connect(plan.strategy.partners(worker.peer))
    zero = await seams.control.join()
    before = seams.interface_bytes()
    async with timeline.since(zero):
        await worker.train()
    _log_stop(seams, before, deadlines=worker.tally.deadlines, missed_deadlines=worker.tally.missed)


async def run_server(plan: Plan, me: NodePlan, seams: Seams) -> None:
    """A server's life."""
    server = _server(plan, me, seams)
    _log_start(seams.log, device="cpu", device_reason="servers sum in host memory")
    await seams.transport.connect(server.workers)
    zero = await seams.control.join()
    before = seams.interface_bytes()
    async with _timeline(plan, me, seams).since(zero):
        await server.serve()
    _log_stop(seams, before, deadlines=0, missed_deadlines=0)
    await seams.control.leave(Final(server.params.tobytes(), server.machine.version, server.machine.samples))


def coordinator(plan: Plan, clock: Clock, log: RunLog) -> Desk:
    """The coordinator's desk; it has logged what is known before a run starts."""
    _log_init(plan, log)
    machine = Run(
        nodes=frozenset(node.name for node in plan.nodes if node.name != COORDINATOR),
        workers=tuple(node.name for node in plan.of_role("worker")),
        epochs=plan.epochs,
        lockstep=plan.strategy.synchronous,
        target=plan.target if plan.stop_at_target else None,
        plan_sha256=plan.sha256,
    )
    return Desk(plan, machine, plan.dataset.load(plan.dtype), clock, log)


def _timeline(plan: Plan, me: NodePlan, seams: Seams) -> Timeline:
    return Timeline(plan, me, seams.control, seams.clock, seams.log, seams.conditions)


def _worker(plan: Plan, me: NodePlan, device: Device, seams: Seams, timeline: Timeline) -> Worker:
    peer = Peer(
        rank=me.rank,
        workers=tuple(node.name for node in plan.of_role("worker")),
        servers=tuple(node.name for node in plan.of_role("ps_shard")),
        shards=plan.shards,
        routes=plan.routes,
        optimiser=plan.optimiser,
        device=device,
        transport=_transport(plan, me, seams, timeline.hindrances),
        batch_size=lambda step: len(plan.order.indices(step)),
    )
    data, pace = plan.dataset.load(plan.dtype), _pace(plan, me, seams.clock, timeline.hindrances)
    return Worker(plan, me, peer, data, pace, seams.control, seams.clock, seams.log, timeline.step_begins)


def _transport(plan: Plan, me: NodePlan, seams: Seams, hindrances: Hindrances) -> Transport:
    """Of a worker that is paused now and then, the network gets to see it."""
    pauses = any(isinstance(event.what, Pause) and me.name in event.what.nodes for event in plan.events)
    return PausingTransport(seams.transport, seams.clock, hindrances) if pauses else seams.transport


def _pace(plan: Plan, me: NodePlan, clock: Clock, hindrances: Hindrances) -> Pace:
    if me.throughput is None:
        return HostSpeed(clock, hindrances)
    factor = partial(me.variation.factor, plan.seed, me.rank) if me.variation else as_declared
    return Paced(clock, me.throughput, me.slot, factor, hindrances)


def _server(plan: Plan, me: NodePlan, seams: Seams) -> Server:
    if not isinstance(plan.strategy, ParameterServer):
        raise ProtocolError(f"{plan.strategy.kind} has no servers, and here is one: {me.name}")
    task = plan.dataset.load(plan.dtype).task
    params = plan.shards[me.rank].of(plan.model.init(task, plan.seed, plan.dtype))
    return Server(
        number=me.rank,
        workers=tuple(node.name for node in plan.of_role("worker")),
        params=params,
        compressor=plan.strategy.number_format,
        optimiser=plan.optimiser,
        state=plan.optimiser.init(params),
        machine=Shard(plan.workers, plan.strategy.synchrony),
        transport=seams.transport,
        clock=seams.clock,
        updates=Batch(seams.log, "shard_updates", UPDATE_COLUMNS),
    )


def _core(share: Share | None) -> dict[str, float | None]:
    """What a node says of its share of a core; a quota is judged by it."""
    return share._asdict() if share else dict.fromkeys(Share._fields)


def _log_start(log: RunLog, **facts: object) -> None:
    process = {"python": platform.python_version(), "numpy": np.__version__, "slice_ns": slice_ns()}
    log.point("node_start", process | facts)


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
        "peers": traffic.by_peer,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        **facts,
    }
    seams.log.point("node_stop", value)


def _log_init(plan: Plan, log: RunLog) -> None:
    """The keys that MLCommons' checker wants of a run before it starts."""
    log.point("cache_clear", value=True)
    log.start("init_start")
    for key, value in _description(plan).items():
        log.point(key, value)


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
    kind = plan.strategy.number_format.kind
    return plan.precision if kind == "identity" else kind
