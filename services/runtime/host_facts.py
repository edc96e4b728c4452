"""Facts about the machine on which a node runs, such as its network interface.

Other facts are the bytes sent on the interface, and the memory allocator.
"""

import fcntl
import os
import platform
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915  # ioctl request for the IPv4 address of an interface
_INTERFACES_FOLDER = Path("/sys/class/net")


def find_network_interface(ipv4_address: str) -> str | None:
    """Return the name of the network interface that has an IPv4 address.

    Return None if no interface has the address (loopback).
    """
    for path in sorted(_INTERFACES_FOLDER.iterdir()) if _INTERFACES_FOLDER.exists() else ():
        if path.name != "lo" and _ipv4_address(path.name) == ipv4_address:
            return path.name
    return None


def read_bytes_sent(interface_name: str | None) -> int | None:
    """Return the number of bytes that the kernel has sent on a network interface.

    The bytes include headers and retransmissions. Return None when the interface is not known.
    """
    if interface_name is None:
        return None
    return int((_INTERFACES_FOLDER / interface_name / "statistics" / "tx_bytes").read_text())


def describe_memory_allocator() -> str:
    """Describe in words whether the memory allocator keeps large message buffers for reuse.

    Buffers that go back to the kernel cost page faults, several times more than copying the messages.
    """
    libc, version = platform.libc_ver()
    if libc != "glibc":
        return "not glibc: the thresholds can't be set, large buffers may be returned to the kernel"
    keeps_buffers = "MALLOC_MMAP_THRESHOLD_" in os.environ
    return f"glibc {version}, large buffers {'are kept for reuse' if keeps_buffers else 'are returned to the kernel'}"


def _ipv4_address(interface_name: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        try:
            reply = fcntl.ioctl(query.fileno(), _SIOCGIFADDR, struct.pack("256s", interface_name.encode()))
        except OSError:
            return None
    return socket.inet_ntoa(reply[20:24])
