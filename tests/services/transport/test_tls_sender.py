"""Tests of the sending end of an encrypted TCP stream."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from types import SimpleNamespace
from typing import Any

from services.transport.tcp.sender import TlsStreamSender


class PausableProtocol(asyncio.Protocol):
    """Application that records whether asyncio has paused its writing."""

    is_paused = False

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False


def test_writer_with_an_empty_buffer_is_never_paused() -> None:
    """asyncio compares the buffer with its limits after each write: a paused writer without data waits for ever."""

    async def check_empty_buffer_several_times() -> list[bool]:
        application = PausableProtocol()
        protocol: Any = SSLProtocol(
            asyncio.get_running_loop(), application, ssl.create_default_context(), None, server_hostname="a"
        )
        limits = SimpleNamespace(set_write_buffer_limits=protocol._set_write_buffer_limits)
        TlsStreamSender(None, SimpleNamespace(transport=limits))  # type: ignore[arg-type]
        protocol._app_transport._closed = True  # it is never connected: no warning at its end
        paused = []
        for _ in range(4):
            protocol._control_app_writing()
            paused.append(application.is_paused)
        return paused

    assert not any(asyncio.run(check_empty_buffer_several_times()))
