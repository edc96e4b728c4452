"""gRPC service and client between the nodes of a command and their coordinator."""

from collections.abc import Mapping
from typing import Any

import grpc

from services.commands.coordinator import CommandCoordinator
from services.coordinator.service import check_caller_certificate
from services.plan import COORDINATOR, CommandPlan
from services.runtime.control import RunEventClient
from services.runtime.identity import NodeIdentity
from services.schema.errors import AuthenticationError
from services.transport.grpc.channels import open_channel, translate_grpc_errors
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import CommandControlServicer, CommandControlStub


class CommandControlService(CommandControlServicer):  # type: ignore[misc]  # generated code has no types
    """gRPC service of the coordinator of a command.

    The caller's TLS certificate must be that of the node named in the request.
    """

    def __init__(self, coordinator: CommandCoordinator) -> None:
        self._coordinator = coordinator

    async def Join(self, request: wire.JoinRequest, context: Any) -> wire.RunStart:  # noqa: N802 - named by the .proto
        await check_caller_certificate(request.node_name, context)
        try:
            start_s = await self._coordinator.join(request.node_name, request.plan_sha256)
        except AuthenticationError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        return wire.RunStart(start_s=start_s)

    async def AwaitTrainingStart(self, request: wire.WaitRequest, context: Any) -> wire.RunStart:  # noqa: N802
        await check_caller_certificate(request.node_name, context)
        return wire.RunStart(start_s=await self._coordinator.await_training_start(request.node_name))

    async def ReportStep(self, request: wire.StepReport, context: Any) -> wire.StepAck:  # noqa: N802
        await check_caller_certificate(request.node_name, context)
        self._coordinator.step_events.report_step_start(request.step)
        return wire.StepAck()

    async def AwaitEvent(self, request: wire.EventRequest, context: Any) -> wire.EventStart:  # noqa: N802
        await check_caller_certificate(request.node_name, context)
        return wire.EventStart(start_s=await self._coordinator.step_events.await_start(request.event_number))

    async def ReportMetrics(self, request: wire.MetricsReport, context: Any) -> wire.StepAck:  # noqa: N802
        await check_caller_certificate(request.node_name, context)
        self._coordinator.report_metrics(dict(request.values), request.step, request.samples)
        return wire.StepAck()

    async def Leave(self, request: wire.CommandEnd, context: Any) -> wire.LeaveAck:  # noqa: N802
        await check_caller_certificate(request.node_name, context)
        await self._coordinator.leave(request.node_name, request.step, request.samples)
        return wire.LeaveAck()


class CommandControlClient(RunEventClient):
    """Client of the coordinator for one node that runs a command; every call has a deadline."""

    def __init__(self, plan: CommandPlan, identity: NodeIdentity) -> None:
        self._plan = plan
        self._node_name = identity.name
        self._channel = open_channel(plan.node_plan(COORDINATOR).addresses.control, COORDINATOR, identity)
        self._stub = CommandControlStub(self._channel)

    async def join(self) -> float:
        request = wire.JoinRequest(node_name=self._node_name, plan_sha256=self._plan.sha256)
        return float((await self._call(self._stub.Join, request, self._plan.timeouts.start)).start_s)

    async def await_training_start(self) -> float:
        """Report that the command is ready to train, and return the start of the training in virtual seconds."""
        request = wire.WaitRequest(node_name=self._node_name)
        return float((await self._call(self._stub.AwaitTrainingStart, request, self._plan.timeouts.run)).start_s)

    async def report_step_start(self, step: int) -> None:
        request = wire.StepReport(node_name=self._node_name, step=step)
        await self._call(self._stub.ReportStep, request, self._plan.timeouts.step)

    async def await_link_event_start(self, event_number: int) -> float:
        request = wire.EventRequest(node_name=self._node_name, event_number=event_number)
        return float((await self._call(self._stub.AwaitEvent, request, self._plan.timeouts.run)).start_s)

    async def report_metrics(self, values: Mapping[str, float], step: int, samples: int) -> None:
        """Report metrics that the command has written after so many steps and samples."""
        request = wire.MetricsReport(node_name=self._node_name, step=step, samples=samples, values=values)
        await self._call(self._stub.ReportMetrics, request, self._plan.timeouts.step)

    async def leave(self, step: int, samples: int) -> None:
        """Report that the command has ended after so many steps and samples of this node."""
        request = wire.CommandEnd(node_name=self._node_name, step=step, samples=samples)
        await self._call(self._stub.Leave, request, self._plan.timeouts.run)

    async def close(self) -> None:
        """Close the connection to the coordinator."""
        await self._channel.close()

    async def _call(self, stub_method: Any, request: Any, timeout_s: float) -> Any:
        """Call a gRPC method of the coordinator with a time limit in virtual seconds, and return the reply."""
        async with translate_grpc_errors(COORDINATOR):
            return await stub_method(request, timeout=timeout_s * self._plan.dilation, wait_for_ready=True)
