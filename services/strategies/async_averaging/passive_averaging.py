"""Service of a passive worker that averages its parameters with active workers while it trains, in AD-PSGD."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import numpy as np

from services.runtime.device import ComputeDevice
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray, Vector, without_divergence_warnings
from services.schema.errors import DeadlineExceeded, ProtocolError


@dataclass
class PassiveAveragingService:
    """Parameters of a passive worker, and the service that averages them with those of active workers.

    Every average and every update of the worker replaces the parameters between two waits of the event loop, so each of
    them is atomic. The service never waits for an answer of an active worker: averages cannot block each other.
    """

    transport: Transport
    device: ComputeDevice
    active_names: Sequence[str]
    params: Vector | None = None  # set by `start`
    average_count: int = 0  # averages that have changed the parameters so far
    _task: asyncio.Task[None] | None = None

    def start(self, params: Vector) -> None:
        """Start to serve active workers, in a task of the running event loop; `params` are this worker's parameters."""
        self.params = params
        self._task = asyncio.get_running_loop().create_task(self._serve_active_workers())

    @property
    def current_params(self) -> Vector:
        """Parameters of this worker, after all averages and updates so far.

        Raises:
            ProtocolError: the service has not been started.
        """
        if self.params is None:
            raise ProtocolError("the parameters of a passive worker are not known before its first step")
        return self.params

    def raise_error(self) -> None:
        """Raise the error with which the service has ended, if it has failed."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def serve_until_active_workers_leave(self) -> None:
        """Return when all active workers have left."""
        if self._task is not None:
            await self._task

    async def _serve_active_workers(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in self.active_names:
                group.create_task(self._serve_active_worker(name))

    async def _serve_active_worker(self, name: str) -> None:
        """Average the parameters with those of one active worker, each time that it sends them, until it leaves."""
        for number in count():
            message = await self._receive_push_or_leave(name, number)
            if message.tag.kind == MessageKind.LEAVE:
                return
            received = np.empty(self.current_params.shape, self.current_params.dtype)
            await receive_remaining_pieces(self.transport, name, message, received)
            reply = Message(MessageTag(number, MessageKind.REPLY))
            await send_vector(self.transport, name, reply, self._average_with(received))

    async def _receive_push_or_leave(self, name: str, number: int) -> Message:
        """Wait for the next message of an active worker, which may choose other passive workers for any time."""
        tags = (MessageTag(number, MessageKind.PUSH), MessageTag(number, MessageKind.LEAVE))
        while True:
            with suppress(DeadlineExceeded):  # worker 0 notices if a worker does not finish its step in time
                return await self.transport.receive(name, *tags)

    def _average_with(self, received: HostArray) -> HostArray:
        """Replace the parameters by their mean with `received`, and return the parameters before."""
        own = self.current_params
        before = np.array(self.device.to_host(own))
        with without_divergence_warnings():
            self.params = mean_of_pair(own, self.device.to_device(received))
        self.average_count += 1
        return before


def mean_of_pair(first: Vector, second: Vector) -> Vector:
    """Return the mean of two vectors; both workers of a pair get the same bits, because addition is commutative."""
    return (first + second) / 2
