"""Calls to the coordinator over gRPC, under mutual TLS."""

from typing import Any

from services.control import Control, Epoch, Final
from services.identity import Identity
from services.plan import COORDINATOR, Plan
from services.transport.grpc.channels import channel, ours
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlStub


class GrpcControl(Control):
    """A node's line to the coordinator; every call carries a deadline in wall seconds."""

    def __init__(self, plan: Plan, identity: Identity) -> None:
        self._plan = plan
        self._node = identity.name
        self._channel = channel(plan.node(COORDINATOR).place.control, COORDINATOR, identity)
        self._stub = ControlStub(self._channel)

    async def join(self) -> float:
        hello = wire.Joined(node=self._node, plan_sha256=self._plan.sha256)
        return float((await self._call(self._stub.Join, hello, self._plan.timeouts.start)).at)

    async def reached(self, step: int) -> None:
        told = wire.StepReached(node=self._node, step=step)
        await self._call(self._stub.Reached, told, self._plan.timeouts.step)

    async def due(self, event: int) -> float:
        awaited = wire.Awaited(node=self._node, event=event)
        return float((await self._call(self._stub.Due, awaited, self._plan.timeouts.run)).at)

    async def end_epoch(self, epoch: Epoch) -> str:
        told = wire.EpochEnded(
            node=epoch.node,
            epoch=epoch.number,
            steps=epoch.steps,
            samples=epoch.samples,
            loss_sum=epoch.loss_sum,
            loss_samples=epoch.loss_samples,
            parameters=epoch.parameters,
            parameters_sha256=epoch.sha256,
        )
        return str((await self._call(self._stub.EndEpoch, told, self._plan.timeouts.step)).reason)

    async def await_stop(self) -> str:
        waiting = wire.Waiting(node=self._node)
        return str((await self._call(self._stub.AwaitStop, waiting, self._plan.timeouts.run)).reason)

    async def leave(self, final: Final) -> None:
        left = wire.Left(node=self._node, parameters=final.parameters, version=final.version, samples=final.samples)
        await self._call(self._stub.Leave, left, self._plan.timeouts.step)

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        async with ours(COORDINATOR):
            return await method(request, timeout=timeout_s * self._plan.dilation, wait_for_ready=True)
