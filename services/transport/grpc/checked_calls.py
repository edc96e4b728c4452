"""Checks of calls on the control network, before they reach their service: invalid requests are recorded."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from services.transport.grpc.connection_watch import ConnectionWatch

Handler = Any  # grpc.RpcMethodHandler, which has no types


def has_grpc_ended_call(context: Any) -> bool:
    """Return whether gRPC has ended a call at this node, as it does when a message is longer than the limit.

    gRPC then forgets the address of the peer. It keeps the address if the peer has ended the call, or is gone.
    """
    return not context.peer()


class CheckedCalls(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor of a control server, which reads the one request of each call and records why it is refused.

    gRPC reads requests before it calls a service, and reports nothing about those that it refuses. So each call is
    registered as a stream, which has the same format on the network, and is read here.
    """

    def __init__(self, connections: ConnectionWatch, message_limit_bytes: int) -> None:
        self._connections = connections
        self._rejections = connections.rejections
        self._message_limit_bytes = message_limit_bytes

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """Return the handler of a call; for an unknown method, one that refuses the call."""
        method, handler = handler_call_details.method, await continuation(handler_call_details)

        async def serve(requests: AsyncIterator[bytes], context: Any) -> Any:
            self._connections.note_call(context.peer())
            if handler is None:
                await self._refuse(context, grpc.StatusCode.UNIMPLEMENTED, f"the method {method} does not exist")
            async for encoded in requests:
                return await handler.unary_unary(await self._decode(method, handler, encoded, context), context)
            if has_grpc_ended_call(context):
                limit = f"the limit of {self._message_limit_bytes:,} bytes"
                self._rejections.record(f"a request of {method} is longer than {limit}")
            return None  # the caller is gone

        if handler is not None and handler.unary_unary is None:
            return handler  # a stream, such as the watch of a health check
        serializer = None if handler is None else handler.response_serializer
        return grpc.stream_unary_rpc_method_handler(serve, None, serializer)

    async def _decode(self, method: str, handler: Handler, encoded: bytes, context: Any) -> Any:
        try:
            return handler.request_deserializer(encoded)
        except Exception:  # noqa: BLE001 - whatever the bytes are, the call must be recorded and refused
            reason = f"{len(encoded)} bytes are not a valid request of {method}"
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, reason)

    async def _refuse(self, context: Any, code: grpc.StatusCode, reason: str) -> None:
        self._rejections.record(reason)
        await context.abort(code, reason)
