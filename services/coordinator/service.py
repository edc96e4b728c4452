"""The coordinator on the wire: a thin shell around its desk."""

from dataclasses import asdict
from typing import Any

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.coordinator.runtime import Desk
from services.runtime.control import EpochReport, FinalState, HandOverStage, HandOverState
from services.schema.errors import ProtocolError, Refused
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlServicer

ROUNDS: dict[str, HandOverStage] = {"stopped": "stopped", "loaded": "loaded"}


class ControlService(ControlServicer):  # type: ignore[misc]  # generated code has no types
    """Answers nodes; whoever calls must be the node that it says it is."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def Join(self, request: wire.JoinRequest, context: Any) -> wire.RunStart:  # noqa: N802 - named by the .proto
        await self._admit(request.node_name, context)
        try:
            at = await self._desk.join(request.node_name, request.plan_sha256)
        except Refused as refusal:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
        return wire.RunStart(start_s=at)

    async def ReportStep(self, request: wire.StepReport, context: Any) -> wire.StepAck:  # noqa: N802
        await self._admit(request.node_name, context)
        self._desk.reached(request.step)
        return wire.StepAck()

    async def AwaitEvent(self, request: wire.EventRequest, context: Any) -> wire.EventStart:  # noqa: N802
        await self._admit(request.node_name, context)
        return wire.EventStart(start_s=await self._desk.due(request.event_number))

    async def ReportEpoch(self, request: wire.EpochReport, context: Any) -> wire.RunDecision:  # noqa: N802
        await self._admit(request.node_name, context)
        epoch = EpochReport(
            node_name=request.node_name,
            epoch=request.epoch,
            steps=request.steps,
            samples=request.samples,
            loss_sum=request.loss_sum,
            loss_samples=request.loss_samples,
            parameters=request.parameters,
            parameters_sha256=request.parameters_sha256,
        )
        try:
            verdict = await self._desk.end_epoch(epoch)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.RunDecision(
            stop=bool(verdict.stop_reason), stop_reason=verdict.stop_reason, must_hand_over=verdict.must_hand_over
        )

    async def AwaitHandOver(self, request: wire.WaitRequest, context: Any) -> wire.HandOverCall:  # noqa: N802
        await self._admit(request.node_name, context)
        return wire.HandOverCall(must_hand_over=await self._desk.await_hand_over())

    async def ReportHandOver(self, request: wire.HandOverState, context: Any) -> wire.HandOverDecision:  # noqa: N802
        await self._admit(request.node_name, context)
        try:
            ruling = await self._desk.hand_over(_held(request))
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.HandOverDecision(**asdict(ruling))

    async def AwaitStop(self, request: wire.WaitRequest, context: Any) -> wire.RunDecision:  # noqa: N802
        await self._admit(request.node_name, context)
        reason = await self._desk.await_stop()
        return wire.RunDecision(stop=True, stop_reason=reason)

    async def Leave(self, request: wire.LeaveRequest, context: Any) -> wire.LeaveAck:  # noqa: N802
        await self._admit(request.node_name, context)
        await self._desk.leave(request.node_name, FinalState(request.parameters, request.version, request.samples))
        return wire.LeaveAck()

    async def _admit(self, node: str, context: Any) -> None:
        """Mutual TLS has shown which node calls; it may speak for no other."""
        certificates = context.auth_context().get("x509_pem_cert", ())
        names = [_common_name(certificate) for certificate in certificates]
        if node not in names:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{names} may not speak for {node}")


def _held(request: wire.HandOverState) -> HandOverState:
    """What a node tells.

    Raises:
        ProtocolError: of a round that there is not.
    """
    if request.stage not in ROUNDS:
        raise ProtocolError(f"{request.node_name} tells of round {request.stage}; there are {', '.join(ROUNDS)}")
    return HandOverState(
        node_name=request.node_name,
        stage=ROUNDS[request.stage],
        next_step=request.next_step,
        version=request.version,
        samples=request.samples,
        updates=request.updates,
        params_digests=tuple(request.params_digests),
        state_digests=tuple(request.state_digests),
        failure=request.failure,
        is_server=request.is_server,
    )


def _common_name(pem: bytes) -> str:
    subject = x509.load_pem_x509_certificate(pem).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
