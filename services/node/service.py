"""Process of one node of a trial: event loop, gRPC server, transport, health check and exit code."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server

from services.cluster.links.link_conditions import ActiveLinkEvents
from services.commands.coordinator import CommandCoordinator
from services.commands.node import CommandNodeServices, make_command_coordinator, run_command_worker
from services.coordinator.runtime import CoordinatorRuntime
from services.coordinator.service import CoordinatorService
from services.node.coordinator_assembly import make_coordinator
from services.node.exit_codes import exit_code_of
from services.node.node_services import NodeServices
from services.node.training_node import run_parameter_server, run_worker
from services.plan import COORDINATOR, CommandPlan, NodePlan, Plan, TrainingPlan
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.control import OPEN_START_GATE_SIGNAL
from services.runtime.core_share import measure_cpu_core_share
from services.runtime.host_facts import find_network_interface, read_bytes_sent
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.schema.errors import DeadlineExceeded, EnsayoError
from services.transport.data_planes import DATA_PLANES
from services.transport.grpc.channels import listen_on, open_channel, server_options
from services.transport.grpc.checked_calls import CheckedCalls
from services.transport.grpc.connection_watch import ConnectionWatch
from services.transport.grpc.coordinator_client import GrpcCoordinatorClient
from services.transport.grpc.handshake_log import read_handshakes
from services.transport.plan_shaping import make_link_shaping
from services.transport.socket_transport import HANDSHAKE_TIMEOUT_S
from services.transport.streams.connection_log import ConnectionLog
from services.transport.tcp.data_plane import TcpTransport
from services.wire.control_pb2_grpc import add_ControlServicer_to_server

HEALTH_TIMEOUT_S = 2.0
CONTROL_IDLE_TIMEOUT_S = 300.0  # wall seconds; nodes connect again when they make a call
STOP_GRACE_S = 2.0  # wall seconds in which the last replies can reach their nodes
# Containers exit one after another: Docker 20.10 hung when 32 containers left a network at the same moment.
EXIT_INTERVAL_S = 0.04


class NodeFiles(NamedTuple):
    """Files and folders that the engine provides to the process of a node."""

    secrets_folder: Path  # with the node's certificate and key
    plan_file: Path
    link_state_file: Path | None  # state of the shared links; None where the kernel shapes them
    trial_folder: Path | None  # that has the folder of checkpoints


def run_node(
    plan: Plan,
    node_name: str,
    secrets_folder: Path,
    plan_file: Path,
    link_state_file: Path | None = None,
    trial_folder: Path | None = None,
) -> int:
    """Run one node of a trial until the run is over, and return the exit code of the node's process.

    Args:
        plan: plan of the trial.
        node_name: name of the node in the plan.
        secrets_folder: folder with the node's certificate and key.
        plan_file: file with the plan, which processes that the node starts read.
        link_state_file: file with the state of the shared links, used by all node processes; None where the kernel
            shapes them.
        trial_folder: folder that has the folder of checkpoints.
    """
    files = NodeFiles(secrets_folder, plan_file, link_state_file, trial_folder)
    failures: list[Exception] = []
    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        try:
            identity = NodeIdentity.read(node_name, secrets_folder)
            runner.run(_run_node(plan, plan.node_plan(node_name), identity, files))
        except* EnsayoError as errors:
            failures.extend(error for error in leaf_errors(errors) if isinstance(error, EnsayoError))
    for failure in failures:
        sys.stderr.write(f"{type(failure).__name__}: {failure}\n")
    return exit_code_of(failures)


def leaf_errors(error_group: BaseExceptionGroup[EnsayoError]) -> Iterator[BaseException]:
    """Yield all errors in an exception group, including the errors in nested groups."""
    for error in error_group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaf_errors(error)
        else:
            yield error


def check_health(plan: Plan, node_name: str, secrets_folder: Path) -> int:
    """Return 0 if the node `node_name` reports that it is ready to serve, otherwise 1."""
    return asyncio.run(_check_health(plan, node_name, NodeIdentity.read(node_name, secrets_folder)))


async def _run_node(
    plan: Plan,
    node: NodePlan,
    tls_identity: NodeIdentity,
    files: NodeFiles,
) -> None:
    clock = WallClock(plan.dilation)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # stdout is a text stream here
    log = RunLog("" if node.name == COORDINATOR else node.name, clock, sys.stdout.write)
    sys.stdout = sys.stderr  # of a user's model, which may print: the standard output has only the log
    tls_addresses = {str(node.addresses.control), *([str(node.addresses.data)] if plan.security.data == "tls" else ())}
    connections = ConnectionWatch(RefusedConnectionLog(log), HANDSHAKE_TIMEOUT_S, tls_addresses.__contains__)
    with read_handshakes(connections.handle_handshake):
        connections.start()
        await _run_role(plan, node, tls_identity, files, clock, log, connections)
        connections.stop()
    if plan.engine == "docker":
        await asyncio.sleep(EXIT_INTERVAL_S * plan.nodes.index(node))


async def _run_role(
    plan: Plan,
    node: NodePlan,
    tls_identity: NodeIdentity,
    files: NodeFiles,
    clock: WallClock,
    log: RunLog,
    connections: ConnectionWatch,
) -> None:
    """Listen on the control port, and run the coordinator, a worker or a server until the run is over."""
    limit_bytes = plan.control_message_limit_bytes
    grpc_server = grpc.aio.server(
        options=server_options(limit_bytes, HANDSHAKE_TIMEOUT_S, CONTROL_IDLE_TIMEOUT_S),
        interceptors=[CheckedCalls(connections, limit_bytes)],
    )
    health_servicer = health.HealthServicer()
    add_HealthServicer_to_server(health_servicer, grpc_server)
    listen_on(grpc_server, node.addresses.control, tls_identity)
    try:
        if node.role == "coordinator":
            runtime = _make_coordinator(plan, clock, log, grpc_server, files.trial_folder, connections.rejections)
            await _run_coordinator(plan, clock, runtime, grpc_server, health_servicer)
        else:
            await grpc_server.start()
            if isinstance(plan, CommandPlan):
                interface_name = find_network_interface(node.addresses.data.host)
                services = CommandNodeServices(
                    tls_identity,
                    clock,
                    log,
                    lambda: read_bytes_sent(interface_name),
                    files.link_state_file,
                    files.secrets_folder,
                    files.plan_file,
                )
                await health_servicer.set("", health_pb2.HealthCheckResponse.SERVING)
                await run_command_worker(plan, node, services)
            elif isinstance(plan, TrainingPlan):
                await _run_worker_or_server(plan, node, tls_identity, clock, log, health_servicer, files, connections)
        await grpc_server.stop(STOP_GRACE_S)
    finally:
        # After an error: without this, gRPC reports a second error when the process exits, below the first one.
        await grpc_server.stop(None)


async def _run_coordinator(
    plan: Plan,
    clock: WallClock,
    runtime: CoordinatorRuntime | CommandCoordinator,
    grpc_server: grpc.aio.Server,
    health_servicer: health.HealthServicer,
) -> None:
    """Run the coordinator until all other nodes have left the trial."""
    gate_opened = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(OPEN_START_GATE_SIGNAL, gate_opened.set)
    await grpc_server.start()
    await health_servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    await _await_with_timeout(clock, plan.timeouts.start, gate_opened, "the engine did not open the start gate")
    await runtime.open_start_gate()
    async with asyncio.TaskGroup() as group:
        if isinstance(runtime, CoordinatorRuntime) and plan.recovery.is_active:
            group.create_task(runtime.membership.watch_heartbeats(runtime.run_finished))
        await _await_with_timeout(clock, plan.timeouts.run, runtime.run_finished, "the run did not end")
        if isinstance(runtime, CoordinatorRuntime):
            runtime.raise_error()


def _make_coordinator(
    plan: Plan,
    clock: WallClock,
    log: RunLog,
    grpc_server: grpc.aio.Server,
    trial_folder: Path | None,
    rejections: RefusedConnectionLog,
) -> CoordinatorRuntime | CommandCoordinator:
    """Return the coordinator of a training or of a command, and add its service to a gRPC server."""
    if isinstance(plan, CommandPlan):
        return make_command_coordinator(plan, clock, log, grpc_server, rejections)
    if not isinstance(plan, TrainingPlan):
        raise TypeError(f"unknown plan: {plan.workload_kind}")
    runtime = make_coordinator(plan, clock, log, trial_folder)
    add_ControlServicer_to_server(CoordinatorService(runtime, rejections), grpc_server)
    return runtime


async def _await_with_timeout(clock: WallClock, timeout_s: float, event: asyncio.Event, timeout_message: str) -> None:
    """Wait for an event for a limited time.

    The wait takes at most `timeout_s` virtual seconds, so that the coordinator ends if the engine has died.

    Raises:
        DeadlineExceeded: the event did not happen in time; the error starts with `timeout_message`.
    """
    try:
        async with asyncio.timeout(clock.to_wall_s(timeout_s)):
            await event.wait()
    except TimeoutError:
        raise DeadlineExceeded(f"{timeout_message} within {timeout_s:g} s") from None


async def _run_worker_or_server(
    plan: TrainingPlan,
    node: NodePlan,
    tls_identity: NodeIdentity,
    clock: WallClock,
    log: RunLog,
    health_servicer: health.HealthServicer,
    files: NodeFiles,
    connections: ConnectionWatch,
) -> None:
    """Listen on the data port, and run a worker or a server until the run is over."""
    link_conditions = ActiveLinkEvents() if plan.engine == "local" else None
    transport = DATA_PLANES[plan.transport](
        addresses={any_node.name: any_node.addresses.data for any_node in plan.nodes},
        identity=tls_identity,
        clock=clock,
        timeout_s=plan.message_timeout_s,
        stream_lifetime_s=plan.timeouts.run,
        shaping=make_link_shaping(plan, node, clock, link_conditions, files.link_state_file),
        protection=plan.security.data,
        payload_scale=plan.payload_scale,
    )
    transport.limit_incoming_streams(plan.payload_limit_bytes, connections.rejections, connections)
    transport.log_connections(ConnectionLog(log))
    if plan.recovery.changes_membership:
        transport.tolerate_lost_peers()
    control = GrpcCoordinatorClient(plan, tls_identity)
    interface_name = find_network_interface(node.addresses.data.host)
    interfaces = NodeServices(
        transport=transport,
        control=control,
        membership=control,
        clock=clock,
        log=log,
        read_interface_bytes=lambda: read_bytes_sent(interface_name),
        measure_core_share=measure_cpu_core_share,
        trial_folder=files.trial_folder,
        link_conditions=link_conditions,
        corruptor=transport.corruptor,
        drop_connections=transport.drop_connections if isinstance(transport, TcpTransport) else None,
    )
    run_role = run_worker if node.role == "worker" else run_parameter_server
    async with transport:
        await health_servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        await run_role(plan, node, interfaces)
    await control.close()


async def _check_health(plan: Plan, node_name: str, tls_identity: NodeIdentity) -> int:
    async with open_channel(plan.node_plan(node_name).addresses.control, node_name, tls_identity) as node_channel:
        request = health_pb2.HealthCheckRequest()
        try:
            response = await HealthStub(node_channel).Check(request, timeout=HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return 1
    return 0 if response.status == health_pb2.HealthCheckResponse.SERVING else 1
