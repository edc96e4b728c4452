"""A whole trial in one process and in virtual time: the same nodes on the in-process fabric."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from services.cluster.fluid_link import Port, goodput
from services.coordinator.runtime import Desk
from services.node.assembly import Seams, coordinator, run_server, run_worker
from services.plan import COORDINATOR, NodePlan, Plan
from services.runtime.clock import Clock, VirtualClock, VirtualTimeLoop
from services.runtime.control import (
    CoordinatorClient,
    EpochDecision,
    EpochReport,
    FinalState,
    HandOverDecision,
    HandOverState,
)
from services.runtime.run_log import RunLog
from services.transport.virtual import VirtualFabric

LIVES: dict[str, Callable[[Plan, NodePlan, Seams], Coroutine[None, None, None]]] = {
    "worker": run_worker,
    "ps_shard": run_server,
}


@dataclass(frozen=True)
class DirectControl(CoordinatorClient):
    """The coordinator in the same process."""

    desk: Desk
    node: str

    async def join(self) -> float:
        return await self.desk.join(self.node, self.desk.plan.sha256)

    async def report_step(self, step: int) -> None:
        self.desk.reached(step)

    async def await_event(self, event_number: int) -> float:
        return await self.desk.due(event_number)

    async def report_epoch(self, report: EpochReport) -> EpochDecision:
        return await self.desk.end_epoch(report)

    async def await_hand_over(self) -> bool:
        return await self.desk.await_hand_over()

    async def report_hand_over(self, state: HandOverState) -> HandOverDecision:
        return await self.desk.hand_over(state)

    async def await_stop(self) -> str:
        return await self.desk.await_stop()

    async def leave(self, final_state: FinalState) -> None:
        await self.desk.leave(self.node, final_state)


def simulate(plan: Plan, sink: Callable[[str], Callable[[str], object]]) -> None:
    """Run the trial to its end.

    Args:
        plan: with engine `simulated`.
        sink: gives, by node name, the function that takes the node's log lines.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_trial(plan, sink))


def simulate_into(plan: Plan, folder: Path) -> None:
    """Run the trial; every node's log goes to `<folder>/<node>.log`, line by line as it is written."""
    files = {node.name: (folder / f"{node.name}.log").open("w", buffering=1) for node in plan.nodes}
    try:
        simulate(plan, lambda name: files[name].write)
    finally:
        for file in files.values():
            file.close()


async def _trial(plan: Plan, sink: Callable[[str], Callable[[str], object]]) -> None:
    clock = VirtualClock()
    desk = coordinator(plan, clock, RunLog("", clock, sink(COORDINATOR)))
    fabric = _fabric(plan)
    async with asyncio.TaskGroup() as group:
        for node in plan.nodes:
            if node.name != COORDINATOR:
                seams = _seams(node.name, fabric, desk, clock, sink(node.name))
                group.create_task(LIVES[node.role](plan, node, seams))
        await desk.open_gate()
    await desk.finished.wait()


def _fabric(plan: Plan) -> VirtualFabric:
    uplinks = {node.name: Port(goodput(node.uplink_bps)) for node in plan.nodes}
    downlinks = {node.name: Port(goodput(node.downlink_bps)) for node in plan.nodes}
    return VirtualFabric(uplinks, downlinks, plan.patience_s, plan.network, plan.seed, plan.piece_bytes)


def _seams(name: str, fabric: VirtualFabric, desk: Desk, clock: Clock, write: Callable[[str], object]) -> Seams:
    return Seams(
        transport=fabric.transport_of(name),
        control=DirectControl(desk, name),
        clock=clock,
        log=RunLog(name, clock, write),
        interface_bytes=lambda: None,
        core_share=lambda: None,
        conditions=fabric.conditions[name],
    )
