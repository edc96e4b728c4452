"""Options of gRPC's servers and channels, as the kernel sees them."""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

import grpc

from services.cluster.addresses import Address
from services.transport.grpc.channels import open_channel, server_options

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
