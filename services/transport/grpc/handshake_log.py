"""Reader of gRPC's log of handshakes.

The Python interface of gRPC does not report connections that gRPC refuses. Its C library logs each handshake to
standard error if the environment variable GRPC_TRACE contains `handshaker` when gRPC is imported. A handshake takes
place once per connection, so nothing is logged for a message.
"""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from services.transport.grpc.connection_watch import Handshake

TRACE_VARIABLE, TRACE_NAME = "GRPC_TRACE", "handshaker"
STANDARD_ERROR = 2  # descriptor
HANDSHAKER_COUNT = 2  # of a server: one reads the addresses, one is that of the credentials
JOIN_TIMEOUT_S = 1.0  # wall seconds; a child process may keep the pipe open
_RECORD_START = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (?P<file>\S+):\d+\] ")
_TRACE_FILES = ("handshaker.cc", "channel_trace.h", "trace.cc")
# Further lines of a record whose error has several lines.
_CONTINUATION = re.compile(r"=== Source Location Trace: ===|src/core/| shutdown=(true|false) index=|\s*$")
_HANDSHAKE = re.compile(
    r"CallNextHandshakerLocked: error=(?P<error>.*?) shutdown=(?P<shutdown>true|false) index=(?P<index>\d+),"
    r".*grpc\.internal\.endpoint_local_address=(?P<server>[^,]+), "
    r".*grpc\.internal\.endpoint_peer_address=(?P<peer>[^,]+), "
    r".*grpc\.internal\.server_credentials=",  # so the connection is one that a server has accepted
    re.DOTALL,
)


@contextmanager
def handshake_trace() -> Iterator[None]:
    """Make gRPC log handshakes, if it is imported in the `with` block. Child processes do not inherit the setting."""
    before = os.environ.get(TRACE_VARIABLE)
    os.environ[TRACE_VARIABLE] = f"{before},{TRACE_NAME}" if before else TRACE_NAME
    try:
        yield
    finally:
        del os.environ[TRACE_VARIABLE]
        if before:
            os.environ[TRACE_VARIABLE] = before


def parse_handshake(record: str) -> Handshake | None:
    """Return the handshake that a record of gRPC's log describes.

    Return None if the record describes no handshake of a server, or its beginning, when the addresses are not known.
    """
    match = _HANDSHAKE.search(record)
    if match is None:
        return None
    addresses = match["server"], match["peer"]
    if match["error"] == "OK":
        return Handshake(*addresses, is_complete=int(match["index"]) >= HANDSHAKER_COUNT)
    first_line = match["error"].splitlines()[0]
    return Handshake(*addresses, error=first_line, has_timed_out=match["shutdown"] == "true")


@dataclass
class HandshakeLogParser:
    """Parser of the lines of a process's standard error: selects the records of handshakes."""

    handle_handshake: Callable[[Handshake], object]
    _record: str = ""  # of a handshake, as far as it was read

    def take_line(self, line: str) -> bool:
        """Handle a line and return True if it belongs to the log of handshakes; else return False."""
        start = _RECORD_START.match(line)
        if start is None:
            if not self._record or not _CONTINUATION.match(line):
                return False
            self._record += line
        else:
            self._record = line if start["file"] in _TRACE_FILES else ""
        if not self._record:
            return False
        if "CallNextHandshakerLocked" in self._record and "exit_early=" in line:
            handshake = parse_handshake(self._record)
            if handshake is not None:
                self.handle_handshake(handshake)
        return True


@contextmanager
def read_handshakes(handle_handshake: Callable[[Handshake], object]) -> Iterator[None]:
    """Read the standard error of this process during the `with` block, and select gRPC's log of handshakes.

    All other lines are passed on to the standard error. C libraries write to descriptor 2, so a pipe takes its place,
    and a thread reads the pipe. `sys.stderr` writes to the standard error directly, so no traceback is held back.

    After the block, the process is about to end: gRPC may still try to connect until then, and what C libraries write
    is dropped. `sys.stderr` goes on to write to the standard error.

    Args:
        handle_handshake: called with each handshake, in the thread.
    """
    original = os.dup(STANDARD_ERROR)
    read_end, write_end = os.pipe()
    os.dup2(write_end, STANDARD_ERROR)
    os.close(write_end)
    sys.stderr = os.fdopen(os.dup(original), "w", buffering=1, errors="backslashreplace")
    parser = HandshakeLogParser(handle_handshake)
    reader = threading.Thread(target=_copy_lines, args=(read_end, original, parser), daemon=True)
    reader.start()
    try:
        yield
    finally:
        no_file = os.open(os.devnull, os.O_WRONLY)
        os.dup2(no_file, STANDARD_ERROR)  # closes this process's write end of the pipe
        os.close(no_file)
        reader.join(JOIN_TIMEOUT_S)


def _copy_lines(read_end: int, original: int, parser: HandshakeLogParser) -> None:
    """Copy all lines of a pipe to a descriptor, except for those of the log of handshakes."""
    with os.fdopen(read_end, "r", errors="backslashreplace") as lines:
        for line in lines:
            if not parser.take_line(line):
                os.write(original, line.encode(errors="backslashreplace"))
