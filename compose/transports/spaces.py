"""Links to measure on: network namespaces of this host, joined by a bridge, with rates as containers have them."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from compose.shaping.credit import burst_bytes
from services.errors import HostError

SUBNET = "10.213.77"  # inside the namespaces alone
CONGESTION = "reno"  # as in containers
CONGESTION_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@dataclass(frozen=True)
class Space:
    """Where the ranks of a group live."""

    hosts: tuple[str, ...]  # address of each rank
    prefixes: tuple[tuple[str, ...], ...]  # of each rank's command
    interface: str
    congestion: str


@cache
def refusal() -> str | None:
    """Why this host has no namespaces for us; None when it has."""
    if missing := [tool for tool in ("ip", "tc", "sysctl") if shutil.which(tool) is None]:
        return f"{' and '.join(missing)} not found (Debian, Ubuntu: apt-get install iproute2 procps)"
    if os.geteuid() != 0:
        return "namespaces need root"
    try:
        with ExitStack() as stack:
            _namespace(stack)
    except HostError as error:
        return str(error)
    return None


@contextmanager
def loopback(ranks: int) -> Iterator[Space]:
    """All ranks at one address; in a namespace of their own where this host has them, else on the host's loopback."""
    hosts = ("127.0.0.1",) * ranks
    if refusal():
        yield Space(hosts, ((),) * ranks, "lo", CONGESTION_FILE.read_text().strip())
        return
    with ExitStack() as stack:
        name = _namespace(stack)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        yield Space(hosts, (("ip", "netns", "exec", name),) * ranks, "lo", CONGESTION)


@contextmanager
def bridged(ranks: int, rate_bps: float) -> Iterator[Space]:
    """Every rank in a namespace of its own behind an uplink of this rate.

    Raises:
        HostError: this host can't.
    """
    with ExitStack() as stack:
        hub = _namespace(stack)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        names = [_namespace(stack) for _ in range(ranks)]
        hosts = tuple(f"{SUBNET}.{1 + rank}" for rank in range(ranks))
        for rank, (name, host) in enumerate(zip(names, hosts, strict=True)):
            _plug_in(hub, f"port{rank}", name, host)
            _shape(name, rate_bps)
        yield Space(hosts, tuple(("ip", "netns", "exec", name) for name in names), "eth0", CONGESTION)


def _namespace(stack: ExitStack) -> str:
    """A new one that goes with the stack; bbr, the default of some hosts, is no match for small shaped links."""
    name = f"ensayo-{secrets.token_hex(3)}"
    _run("ip", "netns", "add", name)
    stack.callback(_remove, name)
    _run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONGESTION}")
    return name


def _plug_in(hub: str, port: str, name: str, host: str) -> None:
    _run("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
    _run("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
    _run("ip", "-n", name, "link", "set", "eth0", "up")
    _run("ip", "-n", name, "link", "set", "lo", "up")


def _shape(name: str, rate_bps: float) -> None:
    """An uplink as containers have it: HTB with a small burst and an explicit leaf."""
    rate, burst = f"{rate_bps:.0f}bit", f"{burst_bytes(rate_bps)}b"
    tc = ("tc", "-n", name)
    _run(*tc, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
    limits = ("rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", "65536")
    _run(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", *limits)
    _run(*tc, "qdisc", "add", "dev", "eth0", "parent", "1:1", "handle", "10:", "pfifo", "limit", "1000")


def _remove(name: str) -> None:
    with suppress(HostError):
        _run("ip", "netns", "del", name)


def _run(*command: str) -> None:
    done = _done(command)
    if done.returncode:
        raise HostError(f"{' '.join(command)}: {done.stderr.strip() or 'failed'}")


def _done(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
