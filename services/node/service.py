"""A node as a process: its loop, its servers, its lines to the others, and its exit."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server

from services.cluster.fluid_link import Own, Port, SharedCells, goodput
from services.cluster.link_conditions import Conditions
from services.coordinator.service import ControlService
from services.node.assembly import Seams, coordinator, run_server, run_worker
from services.plan import COORDINATOR, NodePlan, Plan
from services.runtime.clock import WallClock, precise_event_loop
from services.runtime.control import OPEN_GATE_SIGNAL
from services.runtime.core_share import measure_core_share
from services.runtime.host_facts import find_interface, read_bytes_sent
from services.runtime.identity import NodeIdentity
from services.runtime.run_log import RunLog
from services.schema.errors import DeadlineExceeded, EnsayoError
from services.transport.grpc.channels import GRPC_OPTIONS, listen_on, open_channel
from services.transport.grpc.control import GrpcCoordinatorClient
from services.transport.planes import DATA_PLANES
from services.transport.shaping import DelayOnlyShaping, FluidLinkShaping, NodeLinks, TransportShaping
from services.wire.control_pb2_grpc import add_ControlServicer_to_server

PROBE_S = 2.0
GOODBYE_S = 2.0  # wall seconds for the last answers to reach their nodes
# Containers end one after another: Docker 20.10 has locked itself up when 32 left a network at the same moment.
LEAVES_EVERY_S = 0.04
FAILED = 4


def live(plan: Plan, name: str, secrets: Path, pipes: Path | None = None) -> int:
    """Live as one node; the exit code.

    Args:
        plan: of the trial.
        name: of the node.
        secrets: folder with its certificate and key.
        pipes: file with the state of the pipes that processes share; None when the kernel has them.
    """
    failures: list[Exception] = []
    with asyncio.Runner(loop_factory=precise_event_loop) as runner:
        try:
            runner.run(_live(plan, plan.node(name), NodeIdentity.read(name, secrets), pipes))
        except* EnsayoError as errors:
            failures.extend(leaf for leaf in leaves(errors) if isinstance(leaf, EnsayoError))
    for failure in failures:
        sys.stderr.write(f"{type(failure).__name__}: {failure}\n")
    return FAILED if failures else 0


def leaves(group: BaseExceptionGroup[EnsayoError]) -> Iterator[BaseException]:
    """The errors in a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def probe(plan: Plan, name: str, secrets: Path) -> int:
    """Ask a node whether it serves; 0 when it does."""
    return asyncio.run(_probe(plan, name, NodeIdentity.read(name, secrets)))


async def _live(plan: Plan, me: NodePlan, identity: NodeIdentity, pipes: Path | None) -> None:
    clock = WallClock(plan.dilation)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # stdout is a text stream here
    log = RunLog("" if me.name == COORDINATOR else me.name, clock, sys.stdout.write)
    server = grpc.aio.server(options=GRPC_OPTIONS)
    serving = health.HealthServicer()
    add_HealthServicer_to_server(serving, server)
    listen_on(server, me.place.control, identity)
    try:
        if me.role == "coordinator":
            await _coordinate(plan, clock, log, server, serving)
        else:
            await server.start()
            await _take_part(plan, me, identity, clock, log, serving, pipes)
        await server.stop(GOODBYE_S)
    finally:
        await server.stop(None)  # after an error: it would complain when the process ends, later than whoever says why
    if plan.engine == "docker":
        await asyncio.sleep(LEAVES_EVERY_S * plan.nodes.index(me))


async def _coordinate(
    plan: Plan, clock: WallClock, log: RunLog, server: grpc.aio.Server, serving: health.HealthServicer
) -> None:
    """Serve the desk until everybody has left."""
    desk = coordinator(plan, clock, log)
    add_ControlServicer_to_server(ControlService(desk), server)
    opened = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(OPEN_GATE_SIGNAL, opened.set)
    await server.start()
    await serving.set("", health_pb2.HealthCheckResponse.SERVING)
    await _within(clock, plan.timeouts.start, opened, "nobody opened the gate")
    await desk.open_gate()
    await _within(clock, plan.timeouts.run, desk.finished, "the run did not end")


async def _within(clock: WallClock, timeout_s: float, event: asyncio.Event, what: str) -> None:
    """Wait for an event, at most `timeout_s` virtual seconds: a coordinator whose engine has died must end too.

    Raises:
        DeadlineExceeded: it did not happen.
    """
    try:
        async with asyncio.timeout(clock.to_wall_s(timeout_s)):
            await event.wait()
    except TimeoutError:
        raise DeadlineExceeded(f"{what} within {timeout_s:g} s") from None


async def _take_part(
    plan: Plan,
    me: NodePlan,
    identity: NodeIdentity,
    clock: WallClock,
    log: RunLog,
    serving: health.HealthServicer,
    pipes: Path | None,
) -> None:
    """Serve the data port and live as a worker or a server."""
    conditions = Conditions() if plan.engine == "local" else None
    transport = DATA_PLANES[plan.transport](
        addresses={node.name: node.place.data for node in plan.nodes},
        identity=identity,
        clock=clock,
        timeout_s=plan.patience_s,
        stream_lifetime_s=plan.timeouts.run,
        shaping=_shaping(plan, me, clock, conditions, pipes),
        encrypt=plan.security.data == "tls",
    )
    control = GrpcCoordinatorClient(plan, identity)
    interface = find_interface(me.place.data.host)
    seams = Seams(transport, control, clock, log, lambda: read_bytes_sent(interface), measure_core_share, conditions)
    life = run_worker if me.role == "worker" else run_server
    async with transport:
        await serving.set("", health_pb2.HealthCheckResponse.SERVING)
        await life(plan, me, seams)
    await control.close()


def _shaping(
    plan: Plan, me: NodePlan, clock: WallClock, conditions: Conditions | None, pipes: Path | None
) -> TransportShaping | None:
    """What the kernel leaves to the transport: everything without containers; rates are virtual, like the clock."""
    if conditions is not None:
        cells = SharedCells(pipes) if pipes else None
        shared = [
            Port(goodput(pipe.rate_bps), cells.cell(number) if cells else Own())
            for number, pipe in enumerate(plan.network.pipes)
        ]
        ports = NodeLinks(Port(goodput(me.uplink_bps)), Port(goodput(me.downlink_bps)), shared)
        return FluidLinkShaping(me.name, ports, plan.network, plan.seed, clock, conditions, plan.piece_bytes)
    return DelayOnlyShaping(me.name, plan.network, plan.seed, clock) if plan.delay_rung == "transport" else None


async def _probe(plan: Plan, name: str, identity: NodeIdentity) -> int:
    async with open_channel(plan.node(name).place.control, name, identity) as line:
        try:
            answer = await HealthStub(line).Check(health_pb2.HealthCheckRequest(), timeout=PROBE_S)
        except grpc.aio.AioRpcError:
            return 1
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1
