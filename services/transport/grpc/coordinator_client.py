"""Calls from a node to the coordinator over gRPC, with mutual TLS."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import grpc

from services.plan import COORDINATOR, Plan
from services.runtime.control import (
    CoordinatorClient,
    EvaluationPointReport,
    FinalNodeReport,
    RunEventClient,
    StopOrSwitchDecision,
    StrategySwitchDecision,
    SwitchStageReport,
)
from services.runtime.identity import NodeIdentity
from services.runtime.membership import (
    CheckpointProposal,
    CheckpointReport,
    Membership,
    MembershipClient,
    RecoveryDecision,
    RecoveryReport,
)
from services.transport.grpc.channels import open_channel, translate_grpc_errors
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlStub


class GrpcRunEventClient(RunEventClient):
    """Client of a coordinator for one node of any trial; every call has a deadline."""

    def __init__(self, plan: Plan, identity: NodeIdentity, make_stub: Callable[[grpc.aio.Channel], Any]) -> None:
        self._plan = plan
        self._node_name = identity.name
        self._channel = open_channel(plan.node_plan(COORDINATOR).addresses.control, COORDINATOR, identity)
        self._stub = make_stub(self._channel)

    async def join(self) -> float:
        request = wire.JoinRequest(node_name=self._node_name, plan_sha256=self._plan.sha256)
        return float((await self._call(self._stub.Join, request, self._plan.timeouts.start)).start_s)

    async def report_step_start(self, step: int) -> None:
        request = wire.StepReport(node_name=self._node_name, step=step)
        await self._call(self._stub.ReportStep, request, self._plan.timeouts.step)

    async def await_event_start(self, event_number: int) -> float:
        request = wire.EventRequest(node_name=self._node_name, event_number=event_number)
        return float((await self._call(self._stub.AwaitEvent, request, self._plan.timeouts.run)).start_s)

    async def close(self) -> None:
        """Close the connection to the coordinator."""
        await self._channel.close()

    async def _call(self, stub_method: Any, request: Any, timeout_s: float) -> Any:
        """Call a gRPC method of the coordinator with a time limit, and return the reply.

        The time limit is in virtual seconds.
        """
        async with translate_grpc_errors(COORDINATOR):
            return await stub_method(request, timeout=timeout_s * self._plan.dilation, wait_for_ready=True)


class GrpcCoordinatorClient(GrpcRunEventClient, CoordinatorClient, MembershipClient):
    """Client of the coordinator's gRPC service for one node of a training."""

    def __init__(self, plan: Plan, identity: NodeIdentity) -> None:
        super().__init__(plan, identity, ControlStub)

    async def report_evaluation_point(self, point_report: EvaluationPointReport) -> StopOrSwitchDecision:
        request = wire.EvaluationPointReport(**asdict(point_report))
        decision = await self._call(self._stub.ReportEvaluationPoint, request, self._plan.timeouts.step)
        return StopOrSwitchDecision(str(decision.stop_reason), bool(decision.must_switch_strategy))

    async def await_strategy_switch_start(self) -> bool:
        request = wire.WaitRequest(node_name=self._node_name)
        return bool(
            (await self._call(self._stub.AwaitStrategySwitch, request, self._plan.timeouts.run)).must_switch_strategy
        )

    async def report_strategy_switch(self, node_report: SwitchStageReport) -> StrategySwitchDecision:
        # The coordinator waits for the other nodes for one step timeout, so the caller waits a little longer.
        timeout_s = 2 * self._plan.timeouts.step
        decision = await self._call(
            self._stub.ReportStrategySwitch, wire.StrategySwitchState(**asdict(node_report)), timeout_s
        )
        return StrategySwitchDecision(
            action=decision.action,
            abort_reason=str(decision.abort_reason),
            first_step=int(decision.first_step),
            version=int(decision.version),
            samples=int(decision.samples),
            updates=int(decision.updates),
        )

    async def await_run_stop(self) -> str:
        request = wire.WaitRequest(node_name=self._node_name)
        return str((await self._call(self._stub.AwaitStop, request, self._plan.timeouts.run)).stop_reason)

    async def leave(self, final_report: FinalNodeReport) -> None:
        request = wire.LeaveRequest(node_name=self._node_name, **asdict(final_report))
        await self._call(self._stub.Leave, request, self._plan.timeouts.step)

    async def send_heartbeat(self) -> None:
        request = wire.WaitRequest(node_name=self._node_name)
        await self._call(self._stub.SendHeartbeat, request, self._plan.timeouts.step)

    async def await_membership(self, known_epoch: int) -> Membership:
        request = wire.MembershipRequest(node_name=self._node_name, known_epoch=known_epoch)
        reply = await self._call(self._stub.AwaitMembership, request, self._plan.timeouts.run)
        return Membership(
            int(reply.epoch), tuple(reply.workers), tuple(reply.joined), needs_common_step=bool(reply.needs_common_step)
        )

    async def report_recovery_steps(self, report: RecoveryReport) -> RecoveryDecision:
        # The coordinator may wait until a restarted worker is ready.
        timeout_s = self._plan.timeouts.start + self._plan.timeouts.step
        reply = await self._call(self._stub.ReportRecovery, wire.RecoveryReport(**asdict(report)), timeout_s)
        source, receivers = str(reply.state_source), tuple(reply.state_receivers)
        return RecoveryDecision(int(reply.epoch), int(reply.first_step), source, receivers)

    async def report_checkpoint(self, report: CheckpointReport) -> None:
        await self._call(self._stub.ReportCheckpoint, wire.CheckpointReport(**asdict(report)), self._plan.timeouts.step)

    async def propose_checkpoint(self, proposal: CheckpointProposal) -> None:
        request = wire.CheckpointProposal(**asdict(proposal))
        await self._call(self._stub.ProposeCheckpoint, request, self._plan.timeouts.step)

    async def await_checkpoint_step(self, epoch: int, known_step: int) -> int:
        request = wire.CheckpointWait(node_name=self._node_name, epoch=epoch, known_step=known_step)
        return int((await self._call(self._stub.AwaitCheckpoint, request, self._plan.timeouts.run)).step)
