"""Simulation of a trial in virtual time, with all nodes in one process.

The nodes communicate over a virtual network.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from services.cluster.links.fluid_link import RateLimiter, to_goodput_bytes_per_s
from services.coordinator.runtime import CoordinatorRuntime
from services.node.coordinator_assembly import make_coordinator
from services.node.node_services import NodeServices
from services.node.training_node import run_parameter_server, run_worker
from services.plan import COORDINATOR, NodePlan, TrainingPlan
from services.runtime.clock import Clock, VirtualClock, VirtualTimeLoop
from services.runtime.control import (
    CoordinatorClient,
    EvaluationPointReport,
    FinalNodeReport,
    StopOrSwitchDecision,
    StrategySwitchDecision,
    SwitchStageReport,
)
from services.runtime.run_log import RunLog
from services.transport.virtual import MessageFaults, VirtualFabric

NODE_RUNNERS: dict[str, Callable[[TrainingPlan, NodePlan, NodeServices], Coroutine[None, None, None]]] = {
    "worker": run_worker,
    "ps_shard": run_parameter_server,
}


@dataclass(frozen=True)
class InProcessCoordinatorClient(CoordinatorClient):
    """Client of a coordinator in the same process, which calls its methods directly."""

    runtime: CoordinatorRuntime
    node_name: str

    async def join(self) -> float:
        return await self.runtime.join(self.node_name, self.runtime.plan.sha256)

    async def report_step_start(self, step: int) -> None:
        self.runtime.step_events.report_step_start(step)

    async def await_link_event_start(self, event_number: int) -> float:
        return await self.runtime.step_events.await_start(event_number)

    async def report_evaluation_point(self, point_report: EvaluationPointReport) -> StopOrSwitchDecision:
        return await self.runtime.report_evaluation_point(point_report)

    async def await_strategy_switch_start(self) -> bool:
        return await self.runtime.await_strategy_switch_start()

    async def report_strategy_switch(self, node_report: SwitchStageReport) -> StrategySwitchDecision:
        return await self.runtime.report_strategy_switch(node_report)

    async def await_run_stop(self) -> str:
        return await self.runtime.await_run_stop()

    async def leave(self, final_report: FinalNodeReport) -> None:
        await self.runtime.leave(self.node_name, final_report)


def simulate_trial(
    plan: TrainingPlan,
    make_log_writer: Callable[[str], Callable[[str], object]],
    message_faults: MessageFaults | None = None,
) -> None:
    """Run a trial in virtual time, from start to end, in one process.

    Args:
        plan: plan of the trial, with engine `simulated`.
        make_log_writer: returns, for a node name, the function that writes the log lines of this node.
        message_faults: disturbances of single messages; None for none.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_run_trial(plan, make_log_writer, message_faults))


def simulate_trial_to_folder(plan: TrainingPlan, log_folder: Path) -> None:
    """Run a trial in virtual time, and write the log of each node to a file.

    The file is `<log_folder>/<node>.log`, written line by line.
    """
    files = {node.name: (log_folder / f"{node.name}.log").open("w", buffering=1) for node in plan.nodes}
    try:
        simulate_trial(plan, lambda node_name: files[node_name].write)
    finally:
        for file in files.values():
            file.close()


async def _run_trial(
    plan: TrainingPlan,
    make_log_writer: Callable[[str], Callable[[str], object]],
    message_faults: MessageFaults | None,
) -> None:
    clock = VirtualClock()
    runtime = make_coordinator(plan, clock, RunLog("", clock, make_log_writer(COORDINATOR)))
    fabric = _make_virtual_network(plan, message_faults)
    async with asyncio.TaskGroup() as group:
        for node in plan.nodes:
            if node.name != COORDINATOR:
                interfaces = _make_node_services(node.name, fabric, runtime, clock, make_log_writer(node.name))
                group.create_task(NODE_RUNNERS[node.role](plan, node, interfaces))
        await runtime.open_start_gate()
    await runtime.run_finished.wait()


def _make_virtual_network(plan: TrainingPlan, message_faults: MessageFaults | None) -> VirtualFabric:
    uplinks = {node.name: RateLimiter(to_goodput_bytes_per_s(node.uplink_bps)) for node in plan.nodes}
    downlinks = {node.name: RateLimiter(to_goodput_bytes_per_s(node.downlink_bps)) for node in plan.nodes}
    return VirtualFabric(
        uplinks,
        downlinks,
        plan.message_timeout_s,
        plan.network,
        plan.seed,
        plan.longest_message_bytes,
        plan.payload_scale,
        message_faults,
    )


def _make_node_services(
    node_name: str,
    fabric: VirtualFabric,
    coordinator: CoordinatorRuntime,
    clock: Clock,
    write_log: Callable[[str], object],
) -> NodeServices:
    return NodeServices(
        transport=fabric.make_transport(node_name),
        control=InProcessCoordinatorClient(coordinator, node_name),
        clock=clock,
        log=RunLog(node_name, clock, write_log),
        read_interface_bytes=lambda: None,
        measure_core_share=lambda: None,
        link_conditions=fabric.conditions[node_name],
    )
