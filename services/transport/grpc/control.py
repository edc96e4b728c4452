"""Calls to the coordinator over gRPC, under mutual TLS."""

from dataclasses import asdict
from typing import Any

from services.plan import COORDINATOR, Plan
from services.runtime.control import Control, Epoch, Final, Held, Ruling, Verdict
from services.runtime.identity import Identity
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

    async def end_epoch(self, epoch: Epoch) -> Verdict:
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
        decision = await self._call(self._stub.EndEpoch, told, self._plan.timeouts.step)
        return Verdict(str(decision.reason), bool(decision.hand_over))

    async def await_hand_over(self) -> bool:
        waiting = wire.Waiting(node=self._node)
        return bool((await self._call(self._stub.AwaitHandOver, waiting, self._plan.timeouts.run)).hand_over)

    async def hand_over(self, held: Held) -> Ruling:
        """The coordinator gives up waiting for others after a step's timeout; who asks waits a little longer."""
        patience_s = 2 * self._plan.timeouts.step
        ruling = await self._call(self._stub.HandOver, wire.Held(**asdict(held)), patience_s)
        return Ruling(
            verb=ruling.verb,
            reason=str(ruling.reason),
            step=int(ruling.step),
            version=int(ruling.version),
            samples=int(ruling.samples),
            updates=int(ruling.updates),
        )

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
