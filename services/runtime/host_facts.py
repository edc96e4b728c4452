"""What can a node learn about the machine that it runs on?"""

import fcntl
import os
import platform
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915  # the IPv4 address of an interface
_STATISTICS = Path("/sys/class/net")


def interface_of(address: str) -> str | None:
    """The name of the network interface that has this IPv4 address; None when there is none, as for loopback."""
    for path in sorted(_STATISTICS.iterdir()) if _STATISTICS.exists() else ():
        if path.name != "lo" and _address(path.name) == address:
            return path.name
    return None


def bytes_sent(interface: str | None) -> int | None:
    """Bytes that the kernel has sent on an interface, headers and retransmissions included."""
    if interface is None:
        return None
    return int((_STATISTICS / interface / "statistics" / "tx_bytes").read_text())


def allocator() -> str:
    """What becomes of the large buffers of messages: page faults cost several times more than copying them."""
    libc, version = platform.libc_ver()
    if libc != "glibc":
        return "not glibc, whose thresholds alone can be set: large buffers may go back to the kernel"
    kept = "MALLOC_MMAP_THRESHOLD_" in os.environ
    return f"glibc {version}, large buffers {'are kept' if kept else 'go back to the kernel'}"


def _address(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        try:
            answer = fcntl.ioctl(query.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
