"""Construction of a coordinator or a worker of a trial that runs a command."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cluster.links.link_conditions import ActiveLinkEvents
from services.commands.agent import CommandAgent
from services.commands.control_service import CommandControlClient, CommandControlService
from services.commands.coordinator import CommandCoordinator
from services.plan import CommandPlan, NodePlan
from services.runtime.clock import Clock
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.wire.control_pb2_grpc import add_CommandControlServicer_to_server
from services.worker.event_runner import ScenarioEventRunner


@dataclass(frozen=True)
class CommandNodeServices:
    """Services that the engine provides to a node that runs a command."""

    identity: NodeIdentity
    clock: Clock
    log: RunLog
    read_interface_bytes: Callable[[], int | None]
    link_state_file: Path | None  # state of the links that several processes share; None where the kernel shapes them
    secrets_folder: Path
    plan_file: Path


def make_command_coordinator(
    plan: CommandPlan, clock: Clock, log: RunLog, grpc_server: Any, rejections: RefusedConnectionLog
) -> CommandCoordinator:
    """Return the coordinator of a trial that runs a command, and add its service to a gRPC server."""
    coordinator = CommandCoordinator(plan, clock, log)
    add_CommandControlServicer_to_server(CommandControlService(coordinator, rejections), grpc_server)
    return coordinator


async def run_command_worker(plan: CommandPlan, node: NodePlan, services: CommandNodeServices) -> None:
    """Run the command of one worker from start to end."""
    control = CommandControlClient(plan, services.identity)
    link_conditions = ActiveLinkEvents() if plan.engine == "local" else None
    events = ScenarioEventRunner(plan, node, control, services.clock, services.log, link_conditions)
    agent = CommandAgent(
        plan,
        node,
        control,
        services.clock,
        services.log,
        services.read_interface_bytes,
        events,
        process_group_settings(plan, node, services),
    )
    await agent.run_command()
    await control.close()


def process_group_settings(plan: CommandPlan, node: NodePlan, services: CommandNodeServices) -> dict[str, Any]:
    """Return the settings of Ensayo's process group in the process of the command; empty for gloo."""
    if plan.process_group == "gloo":
        return {}
    workers = plan.node_plans_of_role("worker")
    addresses = {worker.name: [worker.addresses.data.host, worker.addresses.data.port] for worker in workers}
    strategy = plan.strategy.model_dump(mode="json")
    return {
        "node": node.name,
        "ranks": [worker.name for worker in workers],
        "peers": addresses,
        "listen": addresses[node.name],
        "secrets": str(services.secrets_folder),
        "protection": plan.security.data,
        "dilation": plan.dilation,
        "collective": strategy["collective"],
        "compress": strategy["compress"],
        "timeout_s": plan.timeouts.step,
        "plan": str(services.plan_file),
        "link_state_file": str(services.link_state_file) if services.link_state_file else None,
        "racks": plan.racks,
    }
