"""How do channels and servers come about: options, credentials, and errors in our own words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from services.cluster.addresses import Address
from services.runtime.identity import Identity
from services.schema.errors import DeadlineExceeded, NetworkError, Refused, Unreachable

MIB = 1 << 20
# Measured on loopback: lifted size limits are needed; large frames and write buffers are worth some 15 %.
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.max_frame_size", MIB),
    ("grpc.http2.write_buffer_size", 4 * MIB),
    ("grpc.initial_reconnect_backoff_ms", 50),  # nodes start within a second of each other
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
)
_ERRORS: dict[grpc.StatusCode, type[NetworkError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.CANCELLED: Unreachable,
    grpc.StatusCode.UNAUTHENTICATED: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
}


def channel(address: Address, peer: str, identity: Identity | None) -> grpc.aio.Channel:
    """A channel to the node `peer`: under mutual TLS with an identity, in the clear without."""
    if identity is None:
        return grpc.aio.insecure_channel(str(address), options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(identity.authority, identity.key, identity.certificate)
    named = (*OPTIONS, ("grpc.ssl_target_name_override", peer))
    return grpc.aio.secure_channel(str(address), credentials, options=named)


def listen(server: grpc.aio.Server, address: Address, identity: Identity | None) -> None:
    """Let the server listen on exactly this address: under mutual TLS with an identity, in the clear without.

    Raises:
        Unreachable: the address can't be had.
    """
    try:
        if identity is None:
            server.add_insecure_port(str(address))
        else:
            pair = (identity.key, identity.certificate)
            credentials = grpc.ssl_server_credentials([pair], identity.authority, require_client_auth=True)
            server.add_secure_port(str(address), credentials)
    except RuntimeError as error:
        raise Unreachable(f"can't listen on {address}: {error}") from error


@asynccontextmanager
async def ours(peer: str) -> AsyncIterator[None]:
    """Errors of gRPC inside the body leave it as ours."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise translated(peer, error) from error


def translated(peer: str, error: grpc.aio.AioRpcError) -> NetworkError:
    """An error of gRPC in our own words."""
    kind = _ERRORS.get(error.code(), NetworkError)
    return kind(f"{peer}: {error.details()} ({error.code().name})")
