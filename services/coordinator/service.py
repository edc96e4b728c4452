"""The coordinator on the wire: a thin shell around its desk."""

from dataclasses import asdict
from typing import Any

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.coordinator.runtime import Desk
from services.runtime.control import Epoch, Final, Held, Round
from services.schema.errors import ProtocolError, Refused
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlServicer

ROUNDS: dict[str, Round] = {"stopped": "stopped", "loaded": "loaded"}


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
            verdict = await self._desk.end_epoch(epoch)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.Decision(stop=bool(verdict.reason), reason=verdict.reason, hand_over=verdict.hand_over)

    async def AwaitHandOver(self, request: wire.Waiting, context: Any) -> wire.Summons:  # noqa: N802
        await self._admit(request.node, context)
        return wire.Summons(hand_over=await self._desk.await_hand_over())

    async def HandOver(self, request: wire.Held, context: Any) -> wire.Ruling:  # noqa: N802
        await self._admit(request.node, context)
        try:
            ruling = await self._desk.hand_over(_held(request))
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.Ruling(**asdict(ruling))

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


def _held(request: wire.Held) -> Held:
    """What a node tells.

    Raises:
        ProtocolError: of a round that there is not.
    """
    if request.round not in ROUNDS:
        raise ProtocolError(f"{request.node} tells of round {request.round}; there are {', '.join(ROUNDS)}")
    return Held(
        node=request.node,
        round=ROUNDS[request.round],
        step=request.step,
        version=request.version,
        samples=request.samples,
        updates=request.updates,
        params=tuple(request.params),
        state=tuple(request.state),
        failure=request.failure,
        serves=request.serves,
    )


def _common_name(pem: bytes) -> str:
    subject = x509.load_pem_x509_certificate(pem).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
