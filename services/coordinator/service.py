"""gRPC service of the coordinator: passes each call of a node to a `CoordinatorRuntime`."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.checkpoints.checkpoint_error import CheckpointError
from services.coordinator.runtime import CoordinatorRuntime
from services.coordinator.step_events import StepEventStarts
from services.runtime.control import REPORT_STAGES, EvaluationPointReport, FinalNodeReport, SwitchStageReport
from services.runtime.membership import CheckpointProposal, CheckpointReport, RecoveryReport
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.schema.errors import AuthenticationError, EvictedError, ProtocolError
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlServicer


class RunEventCoordinator(Protocol):
    """Coordinator of any trial: nodes join it, and start the scenario's events that wait for a step."""

    @property
    def step_events(self) -> StepEventStarts:
        """Start times of events of links, messages and nodes that wait for a training step."""

    @property
    def log(self) -> RunLog:
        """Log of the run."""

    async def join(self, node_name: str, plan_sha256: str) -> float:
        """Register a ready node, wait for the start, and return its time in virtual seconds."""


class RunEventService:
    """The calls that coordinators of all trials serve.

    The caller's TLS certificate must be that of the node named in the request.
    """

    def __init__(self, coordinator: RunEventCoordinator, rejections: RefusedConnectionLog | None = None) -> None:
        """Create the service; without a log of rejections, it has its own."""
        self._events_coordinator = coordinator
        self._rejections = rejections or RefusedConnectionLog(coordinator.log)

    async def _check_caller(self, node_name: str, context: Any) -> None:
        """Abort and record a call whose TLS certificate is not that of the node `node_name`."""
        await check_caller_certificate(node_name, context, partial(self._rejections.record, claimed_sender=node_name))

    async def Join(self, request: wire.JoinRequest, context: Any) -> wire.RunStart:  # noqa: N802 - named by the .proto
        await self._check_caller(request.node_name, context)
        try:
            start_s = await self._events_coordinator.join(request.node_name, request.plan_sha256)
        except AuthenticationError as error:
            self._rejections.record(str(error), request.node_name)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except EvictedError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return wire.RunStart(start_s=start_s)

    async def ReportStep(self, request: wire.StepReport, context: Any) -> wire.StepAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        self._events_coordinator.step_events.report_step_start(request.node_name, request.step)
        return wire.StepAck()

    async def AwaitEvent(self, request: wire.EventRequest, context: Any) -> wire.EventStart:  # noqa: N802
        await self._check_caller(request.node_name, context)
        start_s = await self._events_coordinator.step_events.await_start(request.event_number)
        return wire.EventStart(start_s=start_s)


class CoordinatorService(RunEventService, ControlServicer):  # type: ignore[misc]  # generated code has no types
    """gRPC service of the coordinator of a training."""

    def __init__(self, runtime: CoordinatorRuntime, rejections: RefusedConnectionLog | None = None) -> None:
        super().__init__(runtime, rejections)
        self._runtime = runtime

    async def ReportEvaluationPoint(self, request: wire.EvaluationPointReport, context: Any) -> wire.RunDecision:  # noqa: N802
        await self._check_caller(request.node_name, context)
        report = EvaluationPointReport(
            node_name=request.node_name,
            number=request.number,
            steps=request.steps,
            samples=request.samples,
            loss_sum=request.loss_sum,
            loss_samples=request.loss_samples,
            parameters=request.parameters,
            parameters_sha256=request.parameters_sha256,
        )
        try:
            verdict = await self._runtime.report_evaluation_point(report)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except EvictedError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return wire.RunDecision(
            stop=bool(verdict.stop_reason),
            stop_reason=verdict.stop_reason,
            must_switch_strategy=verdict.must_switch_strategy,
        )

    async def AwaitStrategySwitch(self, request: wire.WaitRequest, context: Any) -> wire.StrategySwitchCall:  # noqa: N802
        await self._check_caller(request.node_name, context)
        return wire.StrategySwitchCall(must_switch_strategy=await self._runtime.await_strategy_switch_start())

    async def ReportStrategySwitch(  # noqa: N802 - the name in the proto file
        self, request: wire.StrategySwitchState, context: Any
    ) -> wire.StrategySwitchDecision:
        await self._check_caller(request.node_name, context)
        try:
            decision = await self._runtime.report_strategy_switch(_read_strategy_switch_report(request))
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.StrategySwitchDecision(**asdict(decision))

    async def AwaitStop(self, request: wire.WaitRequest, context: Any) -> wire.RunDecision:  # noqa: N802
        await self._check_caller(request.node_name, context)
        reason = await self._runtime.await_run_stop()
        return wire.RunDecision(stop=True, stop_reason=reason)

    async def Leave(self, request: wire.LeaveRequest, context: Any) -> wire.LeaveAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        await self._runtime.leave(
            request.node_name, FinalNodeReport(request.parameters, request.version, request.samples)
        )
        return wire.LeaveAck()

    async def SendHeartbeat(self, request: wire.WaitRequest, context: Any) -> wire.StepAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        try:
            self._runtime.membership.handle_heartbeat(request.node_name)
        except EvictedError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return wire.StepAck()

    async def AwaitMembership(self, request: wire.MembershipRequest, context: Any) -> wire.MembershipEpoch:  # noqa: N802
        await self._check_caller(request.node_name, context)
        membership = await self._runtime.membership.await_membership(request.known_epoch)
        return wire.MembershipEpoch(**asdict(membership))

    async def ReportRecovery(self, request: wire.RecoveryReport, context: Any) -> wire.RecoveryDecision:  # noqa: N802
        await self._check_caller(request.node_name, context)
        report = RecoveryReport(request.node_name, request.epoch, tuple(request.steps))
        try:
            decision = await self._runtime.membership.report_recovery_steps(report)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except EvictedError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return wire.RecoveryDecision(**asdict(decision))

    async def ReportCheckpoint(self, request: wire.CheckpointReport, context: Any) -> wire.StepAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        report = CheckpointReport(request.node_name, request.epoch, request.step, request.bytes, request.digest)
        try:
            self._runtime.checkpoints.handle_report(report)
        except CheckpointError as error:
            await context.abort(grpc.StatusCode.DATA_LOSS, str(error))
        return wire.StepAck()

    async def ProposeCheckpoint(self, request: wire.CheckpointProposal, context: Any) -> wire.StepAck:  # noqa: N802
        await self._check_caller(request.node_name, context)
        proposal = CheckpointProposal(request.node_name, request.epoch, request.step)
        await self._runtime.checkpoint_announcements.propose(proposal)
        return wire.StepAck()

    async def AwaitCheckpoint(self, request: wire.CheckpointWait, context: Any) -> wire.CheckpointStep:  # noqa: N802
        await self._check_caller(request.node_name, context)
        announcements = self._runtime.checkpoint_announcements
        step = await announcements.await_step(request.node_name, request.epoch, request.known_step)
        return wire.CheckpointStep(step=step)


async def check_caller_certificate(
    node_name: str, context: Any, record_rejection: Callable[[str], None] = lambda _reason: None
) -> None:
    """Abort a gRPC call if the caller's TLS certificate is not that of the node `node_name`.

    `record_rejection` is called with the reason before.
    """
    certificates = context.auth_context().get("x509_pem_cert", ())
    certificate_names = [_certificate_node_name(certificate) for certificate in certificates]
    if node_name not in certificate_names:
        message = f"a call with the certificate of {certificate_names} can't be made for node {node_name}"
        record_rejection(message)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, message)


def _read_strategy_switch_report(request: wire.StrategySwitchState) -> SwitchStageReport:
    """Return the state that a node reports in a strategy switch, read from its gRPC request.

    Raises:
        ProtocolError: the stage of the switch does not exist.
    """
    stage = next((stage for stage in REPORT_STAGES if stage == request.stage), None)
    if stage is None:
        stages = ", ".join(REPORT_STAGES)
        raise ProtocolError(
            f"{request.node_name}: stage {request.stage!r} of a strategy switch does not exist; use {stages}"
        )
    return SwitchStageReport(
        node_name=request.node_name,
        stage=stage,
        next_step=request.next_step,
        version=request.version,
        samples=request.samples,
        updates=request.updates,
        params_digests=tuple(request.params_digests),
        state_digests=tuple(request.state_digests),
        failure=request.failure,
        is_server=request.is_server,
        epoch=int(request.epoch),
    )


def _certificate_node_name(certificate_pem: bytes) -> str:
    subject = x509.load_pem_x509_certificate(certificate_pem).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
