"""gRPC service and client between the nodes of a command and their coordinator."""

from collections.abc import Mapping
from typing import Any

from services.commands.coordinator import CommandCoordinator
from services.coordinator.service import RunEventService
from services.plan import CommandPlan
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.transport.grpc.coordinator_client import GrpcRunEventClient
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import CommandControlServicer, CommandControlStub


class CommandControlService(RunEventService, CommandControlServicer):  # type: ignore[misc]  # generated code has no types
    """gRPC service of the coordinator of a command."""

    def __init__(self, coordinator: CommandCoordinator, rejections: RefusedConnectionLog | None = None) -> None:
        super().__init__(coordinator, rejections)
        self._coordinator = coordinator

    async def ReportFirstStep(self, request: wire.FirstStep, context: Any) -> wire.StepAck:  # noqa: N802 - named by the .proto
        await self._check_caller(request.node_name, context)
        self._coordinator.report_first_step(request.node_name, request.begin_s)
        return wire.StepAck()

    async def CompleteFirstStep(self, request: wire.WaitRequest, context: Any) -> wire.RunStart:  # noqa: N802
        await self._check_caller(request.node_name, context)
        return wire.RunStart(start_s=self._coordinator.complete_first_step())

    async def AwaitTrainingStart(self, request: wire.WaitRequest, context: Any) -> wire.RunStart:  # noqa: N802
        await self._check_caller(request.node_name, context)
        return wire.RunStart(start_s=await self._coordinator.await_training_start())

    async def ReportMetrics(self, request: wire.MetricsReport, context: Any) -> wire.StepAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        self._coordinator.report_metrics(dict(request.values), request.step, request.samples)
        return wire.StepAck()

    async def ReportProcessEnd(self, request: wire.ProcessEndReport, context: Any) -> wire.ProcessEndCause:  # noqa: N802
        await self._check_caller(request.node_name, context)
        description = await self._coordinator.report_process_end(
            request.node_name, request.description, has_lost_connection=request.has_lost_connection
        )
        return wire.ProcessEndCause(description=description)

    async def Leave(self, request: wire.CommandEnd, context: Any) -> wire.LeaveAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        await self._coordinator.leave(request.node_name, request.step, request.samples, request.last_step_end_s)
        return wire.LeaveAck()


class CommandControlClient(GrpcRunEventClient):
    """Client of the coordinator for one node that runs a command."""

    def __init__(self, plan: CommandPlan, identity: NodeIdentity) -> None:
        super().__init__(plan, identity, CommandControlStub)

    async def report_first_step(self, begin_s: float) -> None:
        """Report that the command has begun its first step at this time in virtual seconds."""
        request = wire.FirstStep(node_name=self._node_name, begin_s=begin_s)
        await self._call(self._stub.ReportFirstStep, request, self._plan.timeouts.step)

    async def complete_first_step(self) -> float:
        """Report that the first step is complete, and return the start of the training in virtual seconds."""
        request = wire.WaitRequest(node_name=self._node_name)
        return float((await self._call(self._stub.CompleteFirstStep, request, self._plan.timeouts.step)).start_s)

    async def await_training_start(self) -> float:
        """Wait until the training has started, and return its start in virtual seconds."""
        request = wire.WaitRequest(node_name=self._node_name)
        return float((await self._call(self._stub.AwaitTrainingStart, request, self._plan.timeouts.run)).start_s)

    async def report_metrics(self, values: Mapping[str, float], step: int, samples: int) -> None:
        """Report metrics that the command has written after so many steps and samples."""
        request = wire.MetricsReport(node_name=self._node_name, step=step, samples=samples, values=values)
        await self._call(self._stub.ReportMetrics, request, self._plan.timeouts.step)

    async def report_process_end(self, description: str, *, has_lost_connection: bool) -> str:
        """Report how the process of the command has ended, and return how the one that may be the cause has ended.

        The result is empty if there is none.
        """
        request = wire.ProcessEndReport(
            node_name=self._node_name, description=description, has_lost_connection=has_lost_connection
        )
        return str((await self._call(self._stub.ReportProcessEnd, request, self._plan.timeouts.run)).description)

    async def leave(self, step: int, samples: int, last_step_end_s: float) -> None:
        """Report that the command has ended after so many steps and samples of this node.

        `last_step_end_s` is the end of its last step in virtual seconds, or 0 if its steps were not measured.
        """
        request = wire.CommandEnd(
            node_name=self._node_name, step=step, samples=samples, last_step_end_s=last_step_end_s
        )
        await self._call(self._stub.Leave, request, self._plan.timeouts.run)
