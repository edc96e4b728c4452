"""The coordinator on the wire: a thin shell around its desk."""

from typing import Any

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.control import Epoch, Final
from services.coordinator.desk import Desk
from services.errors import ProtocolError, Refused
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlServicer


class ControlService(ControlServicer):  # type: ignore[misc]  # generated code has no types
    """Answers nodes; whoever calls must be the node that it says it is."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def Join(self, request: wire.Joined, context: Any) -> wire.Released:  # noqa: N802 - named by the .proto
        await self._admit(request.node, context)
        try:
            at = await self._desk.join(request.node, request.plan_sha256)
        except Refused as refusal:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
        return wire.Released(at=at)

    async def Reached(self, request: wire.StepReached, context: Any) -> wire.Noted:  # noqa: N802
        await self._admit(request.node, context)
        self._desk.reached(request.step)
        return wire.Noted()

    async def Due(self, request: wire.Awaited, context: Any) -> wire.Begun:  # noqa: N802
        await self._admit(request.node, context)
        return wire.Begun(at=await self._desk.due(request.event))

    async def EndEpoch(self, request: wire.EpochEnded, context: Any) -> wire.Decision:  # noqa: N802
        await self._admit(request.node, context)
        epoch = Epoch(
            node=request.node,
            number=request.epoch,
            steps=request.steps,
            samples=request.samples,
            loss_sum=request.loss_sum,
            loss_samples=request.loss_samples,
            parameters=request.parameters,
            sha256=request.parameters_sha256,
        )
        try:
            reason = await self._desk.end_epoch(epoch)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.Decision(stop=bool(reason), reason=reason)

    async def AwaitStop(self, request: wire.Waiting, context: Any) -> wire.Decision:  # noqa: N802
        await self._admit(request.node, context)
        reason = await self._desk.await_stop()
        return wire.Decision(stop=True, reason=reason)

    async def Leave(self, request: wire.Left, context: Any) -> wire.Goodbye:  # noqa: N802
        await self._admit(request.node, context)
        await self._desk.leave(request.node, Final(request.parameters, request.version, request.samples))
        return wire.Goodbye()

    async def _admit(self, node: str, context: Any) -> None:
        """Mutual TLS has shown which node calls; it may speak for no other."""
        certificates = context.auth_context().get("x509_pem_cert", ())
        names = [_common_name(certificate) for certificate in certificates]
        if node not in names:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{names} may not speak for {node}")


def _common_name(pem: bytes) -> str:
    subject = x509.load_pem_x509_certificate(pem).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
