"""Links of the transport benchmark: network namespaces on a bridge, shaped like the links of containers."""

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

from compose.shaping.bursts import htb_burst_bytes
from services.schema.errors import HostError

SUBNET_PREFIX = "10.213.77"  # used only inside the namespaces
CONGESTION_CONTROL = "reno"  # as in containers
CONGESTION_CONTROL_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@dataclass(frozen=True)
class RankNetwork:
    """Network of the ranks of one variant: their addresses and how to start processes in it."""

    rank_addresses: tuple[str, ...]  # by rank
    command_prefixes: tuple[tuple[str, ...], ...]  # by rank; they run a command in the rank's namespace
    interface_name: str


@cache
def namespaces_unsupported_reason() -> str | None:
    """Return the reason why network namespaces cannot be created on this host; None if they can."""
    if missing := [tool for tool in ("ip", "tc", "sysctl") if shutil.which(tool) is None]:
        return f"{' and '.join(missing)} not found (Debian, Ubuntu: apt-get install iproute2 procps)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with ExitStack() as stack:
            _create_namespace(stack)
    except HostError as error:
        return str(error)
    return None


def delays_unsupported_reason() -> str | None:
    """Return the reason why packets cannot be delayed in the namespaces of this host; None if they can."""
    return None if shutil.which("iptables-nft") else "iptables-nft not found (Debian, Ubuntu: apt-get install iptables)"


def congestion_control() -> str:
    """Return the name of the TCP congestion control of all streams."""
    return CONGESTION_CONTROL_FILE.read_text().strip() if namespaces_unsupported_reason() else CONGESTION_CONTROL


@contextmanager
def loopback_network(rank_count: int) -> Iterator[RankNetwork]:
    """Yield a network with all ranks at 127.0.0.1: in a namespace if possible, else on the host's loopback."""
    hosts = ("127.0.0.1",) * rank_count
    if namespaces_unsupported_reason():
        yield RankNetwork(hosts, ((),) * rank_count, "lo")
        return
    with ExitStack() as stack:
        name = _create_namespace(stack)
        _run_command("ip", "-n", name, "link", "set", "lo", "up")
        yield RankNetwork(hosts, (("ip", "netns", "exec", name),) * rank_count, "lo")


@contextmanager
def bridged_network(rank_count: int, rate_bps: float, delay_s: float = 0.0) -> Iterator[RankNetwork]:
    """Yield a network with every rank in its own namespace, behind an uplink of `rate_bps`.

    Incoming packets are delayed by `delay_s`.

    Raises:
        HostError: a command of `ip` or `tc` failed on this host.
    """
    with ExitStack() as stack:
        hub = _create_namespace(stack)
        _run_command("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run_command("ip", "-n", hub, "link", "set", "bridge", "up")
        names = [_create_namespace(stack) for _ in range(rank_count)]
        hosts = tuple(f"{SUBNET_PREFIX}.{1 + rank}" for rank in range(rank_count))
        for rank, (name, host) in enumerate(zip(names, hosts, strict=True)):
            _connect_to_bridge(hub, f"port{rank}", name, host)
            _limit_uplink(name, rate_bps)
            if delay_s:
                _delay_incoming(stack, name, delay_s)
        yield RankNetwork(hosts, tuple(("ip", "netns", "exec", name) for name in names), "eth0")


def _create_namespace(stack: ExitStack) -> str:
    """Create a namespace that is removed when the stack is closed, and return its name.

    Its congestion control is set, since bbr, the default of some hosts, is slow on small shaped links.
    """
    name = f"ensayo-{secrets.token_hex(3)}"
    _run_command("ip", "netns", "add", name)
    stack.callback(_remove_namespace, name)
    _run_command("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}")
    return name


def _connect_to_bridge(bridge_namespace: str, bridge_port: str, namespace: str, address: str) -> None:
    _run_command(
        "ip",
        "-n",
        bridge_namespace,
        "link",
        "add",
        bridge_port,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        namespace,
    )
    _run_command("ip", "-n", bridge_namespace, "link", "set", bridge_port, "master", "bridge", "up")
    _run_command("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
    _run_command("ip", "-n", namespace, "link", "set", "eth0", "up")
    _run_command("ip", "-n", namespace, "link", "set", "lo", "up")


def _limit_uplink(namespace: str, rate_bps: float) -> None:
    """Shape an uplink like those of containers: HTB with a small burst and an explicit leaf."""
    rate, burst = f"{rate_bps:.0f}bit", f"{htb_burst_bytes(rate_bps)}b"
    tc = ("tc", "-n", namespace)
    _run_command(*tc, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
    limits = ("rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", "65536")
    _run_command(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", *limits)
    _run_command(*tc, "qdisc", "add", "dev", "eth0", "parent", "1:1", "handle", "10:", "pfifo", "limit", "1000")


def _delay_incoming(stack: ExitStack, namespace: str, delay_s: float) -> None:
    """Delay all incoming packets with the delay line of trials, until the stack is closed and its stdin ends."""
    inside = ("ip", "netns", "exec", namespace)
    _run_command(*inside, "iptables-nft", "-A", "INPUT", "-i", "eth0", "-j", "NFQUEUE", "--queue-num", "0")
    queues = {"0": {"path": {"delay_s": delay_s, "jitters": [], "losses": []}}}
    command = (*inside, sys.executable, "-m", "services.shaper.delay_line")
    line = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    stack.enter_context(line)
    assert line.stdin is not None and line.stdout is not None  # noqa: S101, PT018 - both are piped
    line.stdin.write(json.dumps(queues) + "\n")
    line.stdin.flush()
    if not line.stdout.readline():
        raise HostError("the delay line ended unexpectedly; see its output above")


def _remove_namespace(namespace: str) -> None:
    with suppress(HostError):
        _run_command("ip", "netns", "del", namespace)


def _run_command(*command: str) -> None:
    done = _run_and_capture(command)
    if done.returncode:
        raise HostError(f"{' '.join(command)}: {done.stderr.strip() or 'failed'}")


def _run_and_capture(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands of this module
