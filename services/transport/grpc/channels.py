"""gRPC channels and servers: options, credentials, and translation of gRPC errors into Ensayo's errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from services.cluster.addresses import Address
from services.runtime.identity import NodeIdentity
from services.schema.errors import (
    AuthenticationError,
    DeadlineExceeded,
    EvictedError,
    HostError,
    NetworkError,
    PeerUnreachable,
)

MIB = 1 << 20
# Measured on loopback: the size limits must be lifted; large frames and write buffers give some 15 % more throughput.
GRPC_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.max_frame_size", MIB),
    ("grpc.http2.write_buffer_size", 4 * MIB),
    ("grpc.initial_reconnect_backoff_ms", 50),  # nodes start within a second of each other
    ("grpc.min_reconnect_backoff_ms", 2000),  # time of one attempt: a TLS handshake on a busy host takes over 50 ms
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
)
_MAX_INT32 = (1 << 31) - 1
_SEND_FAILED = "Internal error from Core"  # details of a message that gRPC could not send, for any reason
_ERROR_TYPES: dict[grpc.StatusCode, type[NetworkError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: EvictedError,
    grpc.StatusCode.UNAVAILABLE: PeerUnreachable,
    grpc.StatusCode.CANCELLED: PeerUnreachable,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: AuthenticationError,
}


def server_options(
    message_limit_bytes: int, handshake_timeout_s: float, idle_timeout_s: float
) -> tuple[tuple[str, int], ...]:
    """Return the options of a server that unknown processes can connect to.

    Args:
        message_limit_bytes: longest message that the server accepts; a longer one is not read.
        handshake_timeout_s: wall seconds within which a new connection must be set up.
        idle_timeout_s: wall seconds after which a connection without a call is closed.
    """
    return (
        *(option for option in GRPC_OPTIONS if option[0] != "grpc.max_receive_message_length"),
        ("grpc.max_receive_message_length", min(message_limit_bytes, _MAX_INT32)),
        ("grpc.server_handshake_timeout_ms", round(handshake_timeout_s * 1e3)),
        ("grpc.max_connection_idle_ms", round(idle_timeout_s * 1e3)),
        # By default, the kernel closes a connection of a server 20 s after it sent a byte that was not acknowledged, as
        # during a partition. Without keep-alive messages, gRPC does not set this limit.
        ("grpc.keepalive_time_ms", _MAX_INT32),
    )


def open_channel(address: Address, peer_name: str, identity: NodeIdentity | None) -> grpc.aio.Channel:
    """Return a gRPC channel to the node `peer_name`.

    The channel uses mutual TLS if an identity is given. Otherwise it is unencrypted.
    """
    if identity is None:
        return grpc.aio.insecure_channel(str(address), options=GRPC_OPTIONS)
    credentials = grpc.ssl_channel_credentials(identity.ca_certificate, identity.private_key, identity.certificate)
    options = (*GRPC_OPTIONS, ("grpc.ssl_target_name_override", peer_name))
    return grpc.aio.secure_channel(str(address), credentials, options=options)


def listen_on(server: grpc.aio.Server, address: Address, identity: NodeIdentity | None) -> None:
    """Make a gRPC server listen on exactly the given address.

    The server uses mutual TLS if an identity is given. Otherwise it is unencrypted.

    Raises:
        PeerUnreachable: the address is not available.
    """
    try:
        if identity is None:
            server.add_insecure_port(str(address))
        else:
            key_pair = (identity.private_key, identity.certificate)
            credentials = grpc.ssl_server_credentials([key_pair], identity.ca_certificate, require_client_auth=True)
            server.add_secure_port(str(address), credentials)
    except RuntimeError as error:
        raise PeerUnreachable(f"can't listen on {address}: {error}") from error


@asynccontextmanager
async def translate_grpc_errors(peer_name: str) -> AsyncIterator[None]:
    """Translate gRPC errors in a `with` block into Ensayo's errors.

    Raises:
        HostError: the peer can't store data; gRPC itself never uses this status.
        NetworkError: another error, with the name of the peer node.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.DATA_LOSS:
            raise HostError(error.details()) from error
        raise make_network_error(peer_name, error) from error


def make_network_error(peer_name: str, grpc_error: grpc.aio.AioRpcError) -> NetworkError:
    """Return the `NetworkError` that corresponds to a gRPC error."""
    error_type = _ERROR_TYPES.get(grpc_error.code(), NetworkError)
    return error_type(f"call to {peer_name} failed: {grpc_error.details()} ({grpc_error.code().name})")


def make_stream_error(receiver: str, grpc_error: grpc.aio.AioRpcError) -> NetworkError:
    """Return the `NetworkError` that corresponds to a gRPC error of a stream to the node `receiver`."""
    match grpc_error.code():
        case grpc.StatusCode.INVALID_ARGUMENT:
            return PeerUnreachable(f"the stream to {receiver} broke off: {receiver} refused it: {grpc_error.details()}")
        case grpc.StatusCode.INTERNAL if grpc_error.details() == _SEND_FAILED:
            return PeerUnreachable(
                f"the stream to {receiver} broke off: gRPC could not send a message, and says no more"
            )
        case _:
            return make_network_error(receiver, grpc_error)
