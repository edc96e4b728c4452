"""Simulation of a trial in virtual time, with all nodes in one process.

The nodes communicate over a virtual network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from services.cluster.links.fluid_link import RateLimiter, to_goodput_bytes_per_s
from services.coordinator.runtime import CoordinatorRuntime
from services.node.coordinator_assembly import make_coordinator
from services.node.node_services import NodeServices
from services.node.simulated_nodes import SimulatedNodes
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
from services.runtime.membership import (
    CheckpointProposal,
    CheckpointReport,
    Membership,
    MembershipClient,
    RecoveryDecision,
    RecoveryReport,
)
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.transport.streams.connection_log import ConnectionLog
from services.transport.virtual import MessageFaults, VirtualFabric

Reply = TypeVar("Reply")

NODE_RUNNERS: dict[str, Callable[[TrainingPlan, NodePlan, NodeServices], Coroutine[None, None, None]]] = {
    "worker": run_worker,
    "ps_shard": run_parameter_server,
}


@dataclass(frozen=True)
class InProcessCoordinatorClient(CoordinatorClient, MembershipClient):
    """Client of a coordinator in the same process, which calls its methods directly.

    Calls and replies take no time without faults.
    """

    runtime: CoordinatorRuntime
    node_name: str
    wait_until_running: Callable[[str], Awaitable[None]]  # returns when a node, given by its name, is not frozen
    faults: MessageFaults | None = None  # delays of calls and replies; None: they take no time

    async def join(self) -> float:
        return await self._call(self.runtime.join(self.node_name, self.runtime.plan.sha256))

    async def report_step_start(self, step: int) -> None:
        self.runtime.step_events.report_step_start(self.node_name, step)

    async def await_event_start(self, event_number: int) -> float:
        return await self.runtime.step_events.await_start(event_number)

    async def report_evaluation_point(self, point_report: EvaluationPointReport) -> StopOrSwitchDecision:
        return await self._call(self.runtime.report_evaluation_point(point_report))

    async def await_strategy_switch_start(self) -> bool:
        return await self._call(self.runtime.await_strategy_switch_start())

    async def report_strategy_switch(self, node_report: SwitchStageReport) -> StrategySwitchDecision:
        return await self._call(self.runtime.report_strategy_switch(node_report))

    async def await_run_stop(self) -> str:
        return await self._call(self.runtime.await_run_stop())

    async def leave(self, final_report: FinalNodeReport) -> None:
        await self._call(self.runtime.leave(self.node_name, final_report))

    async def _call(self, reply: Coroutine[None, None, Reply]) -> Reply:
        """Call the coordinator, and return its reply when both the coordinator and this node are not frozen."""
        try:
            await self.wait_until_running(self.node_name)
            await self._wait_for_arrival()
            await self.wait_until_running(COORDINATOR)
        except asyncio.CancelledError:
            reply.close()
            raise
        value = await reply
        await self.wait_until_running(COORDINATOR)
        await self._wait_for_arrival()
        await self.wait_until_running(self.node_name)
        return value

    async def _wait_for_arrival(self) -> None:
        """Wait until a call has arrived at the coordinator, or a reply at this node."""
        if self.faults is not None and (delay_s := self.faults.draw_call_delay(self.node_name)):
            await self.runtime.clock.sleep_until(self.runtime.clock.now() + delay_s)

    async def send_heartbeat(self) -> None:
        await self._call(self._record_heartbeat())

    async def _record_heartbeat(self) -> None:
        self.runtime.membership.handle_heartbeat(self.node_name)

    async def await_membership(self, known_epoch: int) -> Membership:
        return await self._call(self.runtime.membership.await_membership(known_epoch))

    async def report_recovery_steps(self, report: RecoveryReport) -> RecoveryDecision:
        return await self._call(self.runtime.membership.report_recovery_steps(report))

    async def report_checkpoint(self, report: CheckpointReport) -> None:
        await self._call(self._record_checkpoint(report))

    async def _record_checkpoint(self, report: CheckpointReport) -> None:
        self.runtime.checkpoints.handle_report(report)

    async def propose_checkpoint(self, proposal: CheckpointProposal) -> None:
        await self._call(self.runtime.checkpoint_announcements.propose(proposal))

    async def await_checkpoint_step(self, epoch: int, known_step: int) -> int:
        return await self._call(self.runtime.checkpoint_announcements.await_step(self.node_name, epoch, known_step))


def simulate_trial(
    plan: TrainingPlan,
    make_log_writer: Callable[[str], Callable[[str], object]],
    trial_folder: Path | None = None,
    message_faults: MessageFaults | None = None,
) -> None:
    """Run a trial in virtual time, from start to end, in one process.

    Args:
        plan: plan of the trial, with engine `simulated`.
        make_log_writer: returns, for a node name, the function that writes the log lines of this node.
        trial_folder: receives checkpoints, and may have some already; None: the plan declares none.
        message_faults: disturbances of single messages and of calls to the coordinator; None for none.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_run_trial(plan, make_log_writer, trial_folder, message_faults))


def simulate_trial_to_folder(plan: TrainingPlan, log_folder: Path) -> None:
    """Run a trial in virtual time, and write the log of each node to a file.

    The file is `<log_folder>/<node>.log`, written line by line.
    """
    files = {node.name: (log_folder / f"{node.name}.log").open("w", buffering=1) for node in plan.nodes}
    try:
        simulate_trial(plan, lambda node_name: files[node_name].write, log_folder.parent)
    finally:
        for file in files.values():
            file.close()


async def _run_trial(
    plan: TrainingPlan,
    make_log_writer: Callable[[str], Callable[[str], object]],
    trial_folder: Path | None,
    message_faults: MessageFaults | None,
) -> None:
    clock = VirtualClock()
    runtime = make_coordinator(plan, clock, RunLog("", clock, make_log_writer(COORDINATOR)), trial_folder)
    fabric = _make_virtual_network(plan, message_faults)

    def run_node(node_name: str) -> Coroutine[None, None, None]:
        node = plan.node_plan(node_name)
        client = InProcessCoordinatorClient(runtime, node_name, fabric.wait_until_running, message_faults)
        interfaces = _make_node_services(client, fabric, clock, make_log_writer(node_name))
        return NODE_RUNNERS[node.role](plan, node, interfaces)

    await SimulatedNodes(plan, runtime, fabric, run_node).run_nodes()


def _make_virtual_network(plan: TrainingPlan, message_faults: MessageFaults | None) -> VirtualFabric:
    uplinks = {node.name: RateLimiter(to_goodput_bytes_per_s(node.uplink_bps)) for node in plan.nodes}
    downlinks = {node.name: RateLimiter(to_goodput_bytes_per_s(node.downlink_bps)) for node in plan.nodes}
    fabric = VirtualFabric(
        uplinks,
        downlinks,
        plan.message_timeout_s,
        plan.network,
        plan.seed,
        plan.longest_message_bytes,
        plan.payload_scale,
        message_faults,
    )
    fabric.refuses_corrupted_messages = plan.security.data == "authenticated"
    fabric.reopens_streams = plan.transport == "tcp"
    return fabric


def _make_node_services(
    client: InProcessCoordinatorClient, fabric: VirtualFabric, clock: Clock, write_log: Callable[[str], object]
) -> NodeServices:
    node_name = client.node_name
    transport, log = fabric.make_transport(node_name), RunLog(node_name, clock, write_log)
    fabric.connection_logs[node_name] = ConnectionLog(log)
    fabric.rejections[node_name] = RefusedConnectionLog(log)
    return NodeServices(
        transport=transport,
        control=client,
        membership=client,
        clock=clock,
        log=log,
        read_interface_bytes=lambda: None,
        measure_core_share=lambda: None,
        trial_folder=client.runtime.trial_folder,
        link_conditions=fabric.conditions[node_name],
        corruptor=fabric.corruptors[node_name],
        drop_connections=transport.drop_connections,
    )
