"""TLS handshake of an incoming TCP connection, before the receiver of its stream takes over."""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from services.transport.socket_transport import HANDSHAKE_TIMEOUT_S

RecordFailure = Callable[[str], None]


class IncomingTlsHandshake(asyncio.Protocol):
    """Incoming connection until its TLS handshake is complete.

    The event loop can do the handshake as well, but reports no failure. Bytes that arrive with the end of the handshake
    are passed on to the receiver.
    """

    def __init__(
        self,
        tls_context: ssl.SSLContext,
        make_receiver: Callable[[], asyncio.BufferedProtocol],
        record_failure: RecordFailure,
        handshakes: "set[IncomingTlsHandshake]",
        max_handshakes: int,
    ) -> None:
        """Create the protocol of a connection that has not been accepted yet.

        Args:
            tls_context: of this node.
            make_receiver: returns the receiver of the stream.
            record_failure: records why the handshake failed.
            handshakes: handshakes of this node; this one is a member from its connection to its end.
            max_handshakes: handshakes that may be under way at the same time.
        """
        self._tls_context = tls_context
        self._make_receiver = make_receiver
        self._record_failure = record_failure
        self._open_handshakes = handshakes
        self._max_handshakes = max_handshakes
        self._is_connected = False
        self._received = bytearray()  # decrypted bytes that the receiver has not got yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._is_connected:  # by the event loop, for the encrypted connection
            return
        self._is_connected = True
        connection = cast("asyncio.Transport", transport)
        if len(self._open_handshakes) >= self._max_handshakes:
            self._record_failure(f"more than {self._max_handshakes} connections wait for a TLS handshake")
            connection.abort()
            return
        connection.pause_reading()  # the first bytes belong to the handshake
        self._open_handshakes.add(self)
        self._handshake = asyncio.get_running_loop().create_task(self._do_handshake(connection))

    def data_received(self, data: bytes) -> None:
        self._received += data

    async def _do_handshake(self, connection: asyncio.Transport) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                connection, self, self._tls_context, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except ConnectionResetError:  # closed by the other process, such as a node that looks whether this one runs
            connection.abort()
            return
        except OSError as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else ""
            self._record_failure(f"the TLS handshake failed: {reason or error}")
            connection.abort()
            return
        finally:
            self._open_handshakes.discard(self)
        assert encrypted is not None  # noqa: S101 - its type is optional only for transports that are closing
        receiver = self._make_receiver()
        receiver.connection_made(encrypted)
        encrypted.set_protocol(receiver)
        self._pass_received_bytes(receiver)

    def _pass_received_bytes(self, receiver: asyncio.BufferedProtocol) -> None:
        received = memoryview(self._received)
        while received:
            buffer = memoryview(receiver.get_buffer(-1))
            size = min(len(buffer), len(received))
            buffer[:size], received = received[:size], received[size:]
            receiver.buffer_updated(size)
