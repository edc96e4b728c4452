"""Connections to the gRPC servers of a node: those that gRPC refuses, or on which no call arrives, are recorded."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from services.runtime.refused_connections import RefusedConnectionLog

CLOSING_S = 1.0  # wall seconds after its time limit within which gRPC closes a silent connection
REMEMBERED_CALLERS_S = 60.0  # wall seconds; longer than the time limit of a connection
# Parts of the error text of gRPC or OpenSSL, and what it means for the process that has connected.
BROKEN_OFF = "Handshake read failed"
TLS_ERRORS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not of this run",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "UNEXPECTED_MESSAGE": "it does not speak TLS",
}


class Handshake(NamedTuple):
    """State of the handshake of one connection, as gRPC logs it."""

    server_address: str  # of this node, such as ipv4:127.0.0.1:5001
    peer_address: str  # of the process that has connected
    error: str = ""  # text of gRPC's error; empty if there is none
    is_complete: bool = False
    has_timed_out: bool = False


@dataclass
class ConnectionWatch:
    """Watch of one node's gRPC servers, which records each refused connection once.

    A connection is refused if its TLS handshake fails or takes too long. Without TLS, a connection is refused if no
    call of the trial arrives on it within the time limit. A TLS handshake that the peer breaks off is not recorded: a
    node does that if this host is too busy to answer in time.
    The methods run on the event loop of the node, except for `handle_handshake`.
    """

    rejections: RefusedConnectionLog
    timeout_s: float  # wall seconds within which a call must arrive
    is_tls_address: Callable[[str], bool]  # whether a server address of this node uses TLS
    handshake_count: int = 0
    _pending: dict[str, Handshake] = field(default_factory=dict)  # without a call, by the address of the peer
    _callers: dict[str, float] = field(default_factory=dict)  # time of the last first call, by the address of the peer
    _loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Record refused connections from now on. Call this on the event loop of the node."""
        self._loop = asyncio.get_running_loop()

    def handle_handshake(self, handshake: Handshake) -> None:
        """Handle a logged handshake. Any thread may call this."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._update, handshake)

    def note_call(self, peer_address: str) -> None:
        """Note a call on a connection, which is therefore not recorded here; the receiver of the call may refuse it."""
        self._pending.pop(peer_address, None)
        if peer_address in self._callers or self._loop is None:
            return
        now_s = self._loop.time()
        self._callers = {peer: at_s for peer, at_s in self._callers.items() if at_s > now_s - REMEMBERED_CALLERS_S}
        self._callers[peer_address] = now_s

    def stop(self) -> None:
        """Record the connections that have made no call until the end of the node."""
        for peer_address in list(self._pending):
            self._refuse_if_silent(peer_address, "it made no call of this trial before the end of the node")
        self._loop = None

    def _update(self, handshake: Handshake) -> None:
        if self._loop is None:
            return
        self.handshake_count += 1
        peer_address = handshake.peer_address
        if handshake.error:
            self._pending.pop(peer_address, None)
            if handshake.has_timed_out or BROKEN_OFF not in handshake.error:
                self._record(handshake, _explain_tls_error(handshake, self.timeout_s))
        elif handshake.is_complete:
            if self.is_tls_address(handshake.server_address.partition(":")[2]):  # the peer has a certificate
                self._pending.pop(peer_address, None)
        elif peer_address not in self._callers:  # its call may be noted before its handshake is read from the log
            self._pending[peer_address] = handshake
            reason = f"it made no call of this trial within {self.timeout_s:g} s"
            self._loop.call_later(self.timeout_s + CLOSING_S, self._refuse_if_silent, peer_address, reason)

    def _refuse_if_silent(self, peer_address: str, reason: str) -> None:
        handshake = self._pending.pop(peer_address, None)
        if handshake is not None:
            self._record(handshake, reason)

    def _record(self, handshake: Handshake, reason: str) -> None:
        server, peer = (address.partition(":")[2] for address in (handshake.server_address, handshake.peer_address))
        self.rejections.record(f"the connection from {peer} to {server} was refused: {reason}")


def _explain_tls_error(handshake: Handshake, timeout_s: float) -> str:
    if handshake.has_timed_out:
        return f"it did not complete the TLS handshake within {timeout_s:g} s, or before the end of the node"
    known = (meaning for text, meaning in TLS_ERRORS.items() if text in handshake.error)
    return next(known, f"the TLS handshake failed: {handshake.error}")
