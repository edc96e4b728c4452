"""What is a node made of? Puts the parts of each role together, from the plan and the seams that an engine gives."""

import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from services.clock import Clock
from services.control import Control, Final
from services.coordinator.desk import Desk
from services.coordinator.machine import Run
from services.device import Device, select
from services.errors import ProtocolError
from services.pacing import HostSpeed, Paced
from services.plan import COORDINATOR, NodePlan, Plan
from services.ps_shard.loop import UPDATE_COLUMNS, Server
from services.ps_shard.machine import Shard
from services.runlog import Batch, RunLog
from services.scheduling import slice_ns
from services.strategies import ParameterServer, Peer
from services.transport.base import Transport
from services.worker.loop import Worker


@dataclass(frozen=True)
class Seams:
    """What an engine gives a node: the outside world."""

    transport: Transport
    control: Control
    clock: Clock
    log: RunLog
    interface_bytes: Callable[[], int | None]  # that the shaped network's interface has sent; None: can't be known


async def run_worker(plan: Plan, me: NodePlan, seams: Seams) -> None:
    """A worker's life."""
    device = select(me.device)
    worker = _worker(plan, me, device, seams)
    _log_start(seams.log, device=device.name, device_model=device.description, device_reason=device.reason)
    await worker.warm_up()
    await seams.transport.connect(plan.strategy.partners(worker.peer))
    await seams.control.join()
    before = seams.interface_bytes()
    await worker.train()
    _log_stop(seams, before, deadlines=worker.tally.deadlines, missed_deadlines=worker.tally.missed)


async def run_server(plan: Plan, me: NodePlan, seams: Seams) -> None:
    """A server's life."""
    server = _server(plan, me, seams)
    _log_start(seams.log, device="cpu", device_reason="servers sum in host memory")
    await seams.transport.connect(server.workers)
    await seams.control.join()
    before = seams.interface_bytes()
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


def _worker(plan: Plan, me: NodePlan, device: Device, seams: Seams) -> Worker:
    peer = Peer(
        rank=me.rank,
        workers=tuple(node.name for node in plan.of_role("worker")),
        servers=tuple(node.name for node in plan.of_role("ps_shard")),
        shards=plan.shards,
        routes=plan.routes,
        optimiser=plan.optimiser,
        device=device,
        transport=seams.transport,
        batch_size=lambda step: len(plan.order.indices(step)),
    )
    pace = Paced(seams.clock, me.throughput, me.slot) if me.throughput else HostSpeed(seams.clock)
    return Worker(plan, me, peer, plan.dataset.load(plan.dtype), pace, seams.control, seams.clock, seams.log)


def _server(plan: Plan, me: NodePlan, seams: Seams) -> Server:
    if not isinstance(plan.strategy, ParameterServer):
        raise ProtocolError(f"{plan.strategy.kind} has no servers, and here is one: {me.name}")
    task = plan.dataset.load(plan.dtype).task
    params = plan.shards[me.rank].of(plan.model.init(task, plan.seed, plan.dtype))
    return Server(
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
