"""Options of gRPC's servers and channels, as the kernel sees them, and errors of streams."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from services.cluster.addresses import Address
from services.schema.errors import PeerUnreachable
from services.transport.grpc.channels import make_stream_error, open_channel, server_options

TCP_USER_TIMEOUT = 18  # socket option of Linux: milliseconds


def user_timeouts_of_port(port: int) -> list[int]:
    """Return the TCP user timeouts of the connections of this process that a server on this port has accepted."""
    timeouts_ms = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # a descriptor may be closed meanwhile, or a socket have no peer
            if not str(path.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as connection:
                is_internet = connection.family in (socket.AF_INET, socket.AF_INET6)
                if is_internet and connection.getpeername() and connection.getsockname()[1] == port:
                    timeouts_ms.append(connection.getsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT))
    return timeouts_ms


def test_the_kernel_does_not_close_connections_of_a_server_during_a_partition() -> None:
    """The step timeout decides how long a trial waits; gRPC's default is a limit of 20 s."""

    async def main() -> list[int]:
        async def reply(_request: bytes, _context: object) -> bytes:
            return b"reply"

        server = grpc.aio.server(options=server_options(1000, 10.0, 10.0))
        handlers = {"Call": grpc.unary_unary_rpc_method_handler(reply)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Service", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with open_channel(Address(host="127.0.0.1", port=port), "a", None) as channel:
            await channel.unary_unary("/Service/Call")(b"request", timeout=5.0)
            timeouts_ms = user_timeouts_of_port(port)
        await server.stop(None)
        return timeouts_ms

    assert asyncio.run(main()) == [0]


@pytest.fixture
def refusing_address() -> Iterator[Address]:
    """Return the address of a server, with threads of its own, that refuses each stream after its first message."""

    def refuse(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        next(messages)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a message has a wrong tag")

    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {"Send": grpc.stream_unary_rpc_method_handler(refuse)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Address(host="127.0.0.1", port=port)
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("is_error_read", "reason"),
    [(True, "b refused it: a message has a wrong tag"), (False, "gRPC could not send a message, and says no more")],
    ids=["error_has_been_read", "error_has_not_been_read"],
)
def test_a_stream_that_its_receiver_refuses_breaks_off(
    refusing_address: Address, reason: str, *, is_error_read: bool
) -> None:
    """gRPC itself says "Internal error from Core" of a message that is written before this error has been read."""

    async def main() -> grpc.aio.AioRpcError:
        async with open_channel(refusing_address, "b", None) as channel:
            call = channel.stream_unary("/Service/Send")(timeout=5.0)
            await call.write(b"first")
            if not is_error_read:
                time.sleep(0.3)  # noqa: ASYNC251 the error arrives, but the event loop can't read it
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await (call if is_error_read else call.write(b"second"))
            return raised.value

    error = make_stream_error("b", asyncio.run(main()))

    assert isinstance(error, PeerUnreachable)
    assert str(error) == f"the stream to b broke off: {reason}"
