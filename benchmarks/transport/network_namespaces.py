"""Links to measure on: network namespaces of this host, joined by a bridge, with rates as containers have them."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from compose.shaping.bursts import burst_bytes
from services.schema.errors import HostError

SUBNET = "10.213.77"  # inside the namespaces alone
CONGESTION = "reno"  # as in containers
CONGESTION_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@dataclass(frozen=True)
class Space:
    """Where the ranks of a group live."""

    hosts: tuple[str, ...]  # address of each rank
    prefixes: tuple[tuple[str, ...], ...]  # of each rank's command
    interface: str


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


def refusal_of_delays() -> str | None:
    """Why a host with namespaces can't delay packets in them; None when it can."""
    return None if shutil.which("iptables-nft") else "iptables-nft not found (Debian, Ubuntu: apt-get install iptables)"


def congestion() -> str:
    """The congestion control of all streams."""
    return CONGESTION_FILE.read_text().strip() if refusal() else CONGESTION


@contextmanager
def loopback(ranks: int) -> Iterator[Space]:
    """All ranks at one address; in a namespace of their own where this host has them, else on the host's loopback."""
    hosts = ("127.0.0.1",) * ranks
    if refusal():
        yield Space(hosts, ((),) * ranks, "lo")
        return
    with ExitStack() as stack:
        name = _namespace(stack)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        yield Space(hosts, (("ip", "netns", "exec", name),) * ranks, "lo")


@contextmanager
def bridged(ranks: int, rate_bps: float, delay_s: float = 0.0) -> Iterator[Space]:
    """Every rank in a namespace of its own behind an uplink of this rate; what comes in waits for `delay_s`.

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
            if delay_s:
                _delay(stack, name, delay_s)
        yield Space(hosts, tuple(("ip", "netns", "exec", name) for name in names), "eth0")


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


def _delay(stack: ExitStack, name: str, delay_s: float) -> None:
    """The delay line of trials, on everything that comes in; it ends with its input."""
    inside = ("ip", "netns", "exec", name)
    _run(*inside, "iptables-nft", "-A", "INPUT", "-i", "eth0", "-j", "NFQUEUE", "--queue-num", "0")
    queues = {"0": {"path": {"delay_s": delay_s, "jitters": [], "losses": []}}}
    command = (*inside, sys.executable, "-m", "services.shaper.delay_line")
    line = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    stack.enter_context(line)
    assert line.stdin is not None and line.stdout is not None  # noqa: S101, PT018 - both are piped
    line.stdin.write(json.dumps(queues) + "\n")
    line.stdin.flush()
    if not line.stdout.readline():
        raise HostError("the delay line has ended; what it said stands above")


def _remove(name: str) -> None:
    with suppress(HostError):
        _run("ip", "netns", "del", name)


def _run(*command: str) -> None:
    done = _done(command)
    if done.returncode:
        raise HostError(f"{' '.join(command)}: {done.stderr.strip() or 'failed'}")


def _done(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
