"""Records of gRPC's log of handshakes, and what a node records about the connections."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from refused_connection_events import refused_connections

from services.runtime.clock import WallClock
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.transport.grpc.connection_watch import ConnectionWatch, Handshake
from services.transport.grpc.handshake_log import HandshakeLogParser

SERVER, PEER = "ipv4:127.0.0.1:5001", "ipv4:127.0.0.1:40000"
PREFIX = "I1127 01:18:39.892311   24159 handshaker.cc:155] CallNextHandshakerLocked: error="
ARGUMENTS = (
    "args={{endpoint=0x1, args={{grpc.enable_http_proxy=0, grpc.internal.endpoint_local_address=" + SERVER + ", "
    "grpc.internal.endpoint_peer_address=" + PEER + ", grpc.internal.server_credentials=0x2, grpc.so_reuseport=0}}, "
    "read_buffer.Length()=0, exit_early=0}}\n"
).format()
TRACE = "=== Source Location Trace: ===\nsrc/core/util/status_helper.cc:68\n"
ERROR = "UNKNOWN: Ssl handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: unable to get local issuer: OK"
ACCEPTED = Handshake(SERVER, PEER)


def take(text: str) -> tuple[list[Handshake], str]:
    """Return the handshakes in a text, and the lines that are no log of handshakes."""
    handshakes: list[Handshake] = []
    parser = HandshakeLogParser(handshakes.append)
    return handshakes, "".join(line for line in text.splitlines(keepends=True) if not parser.take_line(line))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (f"{PREFIX}OK shutdown=false index=1, {ARGUMENTS}", ACCEPTED),
        (f"{PREFIX}OK shutdown=false index=2, {ARGUMENTS}", ACCEPTED._replace(is_complete=True)),
        (f"{PREFIX}{ERROR}\n{TRACE} shutdown=false index=2, {ARGUMENTS}", ACCEPTED._replace(error=ERROR)),
        (
            f"{PREFIX}UNAVAILABLE: Handshake read failed\n{TRACE} shutdown=true index=2, {ARGUMENTS}",
            ACCEPTED._replace(error="UNAVAILABLE: Handshake read failed", has_timed_out=True),
        ),
    ],
    ids=["accepted", "complete", "refused", "timed out"],
)
def test_a_record_of_a_server_is_parsed_and_removed(record: str, expected: Handshake) -> None:
    """Errors of gRPC have several lines, and other lines must be kept in their order."""
    handshakes, rest = take(f"before\n{record}\nTraceback (most recent call last):\nafter\n")

    assert handshakes == [expected]
    assert rest == "before\nTraceback (most recent call last):\nafter\n"


def test_records_of_clients_and_beginnings_are_removed_and_ignored() -> None:
    """A client's handshake has no credentials of a server, and the first record of a server has no addresses."""
    client = f"{PREFIX}OK shutdown=false index=1, {ARGUMENTS}".replace("server_credentials", "channel_credentials")
    begin = f"{PREFIX}OK shutdown=false index=0, args={{endpoint=0x1}}, read_buffer.Length()=0, exit_early=0}}\n"
    other = "I1127 01:15:27.919281   17924 chttp2_transport.cc:1403] ipv4:127.0.0.1:57313: Got goaway [2]\n"

    assert take(client + begin + other) == ([], other)


@pytest.fixture
def watch_connections() -> Callable[..., list[str]]:
    """Return `watch(use, is_tls)`, which uses a watch of connections and returns the recorded reasons."""

    def watch(use: Callable[[ConnectionWatch], Any], *, is_tls: bool) -> list[str]:
        lines: list[str] = []

        async def main() -> None:
            rejections = RefusedConnectionLog(RunLog("", WallClock(), lines.append))
            connections = ConnectionWatch(rejections, 10.0, lambda _address: is_tls)
            connections.start()
            use(connections)
            await asyncio.sleep(0.05)
            connections.stop()

        asyncio.run(main())
        return [event["reason"] for event in refused_connections(lines)]

    return watch


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ERROR, "its certificate is not of this run"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it has no certificate"),
        ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
        ("another error", "the TLS handshake failed: another error"),
    ],
)
def test_a_failed_handshake_is_recorded_once_with_its_reason(
    watch_connections: Callable[..., list[str]], error: str, reason: str
) -> None:
    def use(connections: ConnectionWatch) -> None:
        connections.handle_handshake(ACCEPTED)
        connections.handle_handshake(ACCEPTED._replace(error=error))

    assert watch_connections(use, is_tls=True) == [
        f"the connection from 127.0.0.1:40000 to 127.0.0.1:5001 was refused: {reason}"
    ]


@pytest.mark.parametrize("is_call_first", [True, False])
def test_a_connection_with_a_call_is_not_recorded(
    watch_connections: Callable[..., list[str]], is_call_first: bool
) -> None:
    """The thread that reads the log may be later than the call."""

    def use(connections: ConnectionWatch) -> None:
        if is_call_first:
            connections.note_call(PEER)
        connections.handle_handshake(ACCEPTED)
        if not is_call_first:
            asyncio.get_running_loop().call_later(0.02, connections.note_call, PEER)

    assert watch_connections(use, is_tls=False) == []


def test_a_connection_without_a_call_is_recorded_once_unless_it_has_a_certificate(
    watch_connections: Callable[..., list[str]],
) -> None:
    def use(connections: ConnectionWatch) -> None:
        connections.handle_handshake(ACCEPTED)
        connections.handle_handshake(ACCEPTED._replace(is_complete=True))

    (reason,) = watch_connections(use, is_tls=False)
    assert "it made no call of this trial" in reason
    assert watch_connections(use, is_tls=True) == []


def test_a_handshake_that_the_peer_breaks_off_is_not_recorded(watch_connections: Callable[..., list[str]]) -> None:
    """Nodes break off handshakes on a busy host, and try again; one that takes too long is recorded."""
    broken_off = ACCEPTED._replace(error="UNAVAILABLE: Handshake read failed (Connection reset)")

    assert watch_connections(lambda watch: watch.handle_handshake(broken_off), is_tls=True) == []
    (reason,) = watch_connections(
        lambda watch: watch.handle_handshake(broken_off._replace(has_timed_out=True)), is_tls=True
    )
    assert "did not complete the TLS handshake within 10 s" in reason
