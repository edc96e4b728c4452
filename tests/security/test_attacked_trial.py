"""A trial of processes that is attacked while it trains has the same result as a trial that is not."""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from attacked_trial import AttackingObserver, make_attacked_plan, read_lines, run_attacked_plan, write_bytes
from refused_connection_events import refused_connections

from compose.engines.local import LocalEngine
from compose.runs.certificates import issue_certificates
from services.plan import Plan
from services.runtime.identity import NodeIdentity
from services.transport.data_planes import DATA_PLANES
from services.transport.tcp.sender import LENGTH_FORMAT

ETHERNET_BYTES, LOOPBACK = 14, "lo"


@contextmanager
def recorded_openings(ports: Mapping[int, str]) -> Iterator[dict[str, bytes]]:
    """Record the first bytes that each connection sends to these ports of the loopback interface, by node name."""
    try:
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    except PermissionError:
        pytest.skip("reading the packets of the loopback interface needs the capability CAP_NET_RAW")
    sniffer.bind((LOOPBACK, 0))
    sniffer.settimeout(0.1)
    sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
    streams: dict[tuple[int, int], bytes] = {}
    openings: dict[str, bytes] = {}
    must_stop = threading.Event()

    def record() -> None:
        while not must_stop.is_set():
            with suppress(TimeoutError):
                frame, address = sniffer.recvfrom(1 << 17)
                source, target, data = tcp_payload(frame)
                if target in ports and address[2] != socket.PACKET_OUTGOING and data:
                    stream = streams.setdefault((source, target), b"")
                    if len(stream) < 4_000:
                        streams[source, target] = stream + data
                        openings[ports[target]] = streams[source, target]

    thread = threading.Thread(target=record)
    thread.start()
    try:
        yield openings
    finally:
        must_stop.set()
        thread.join()
        sniffer.close()


def tcp_payload(frame: bytes) -> tuple[int, int, bytes]:
    """Return source port, target port and payload of a TCP packet in an Ethernet frame; zeros for other packets."""
    packet = frame[ETHERNET_BYTES:]
    if packet[9] != socket.IPPROTO_TCP:
        return 0, 0, b""
    segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
    source, target = (int.from_bytes(segment[start : start + 2], "big") for start in (0, 2))
    return source, target, segment[(segment[12] >> 4) * 4 :]


@pytest.fixture
def run_trial(tmp_path: Path) -> Any:
    """Return `run_trial(name, transport, attack)`, which runs a trial of two workers."""
    engine = LocalEngine()

    def run(name: str, transport: str, attack: Any, *, sniff: bool) -> tuple[AttackingObserver, Path, dict[str, bytes]]:
        plan = make_attacked_plan(f"{tmp_path.name}-{os.getpid()}-{name}", transport, "signed", engine)
        folder = tmp_path / name
        ports = {node.addresses.data.port: node.name for node in plan.nodes if node.role == "worker"}
        with recorded_openings(ports) if sniff else nullcontext({}) as openings:
            attack_with_openings = attack and (lambda plan: attack(plan, openings))
            observer = run_attacked_plan(plan, folder, engine, attack_with_openings)
        return observer, folder, openings

    yield run
    engine.close()


def make_attack(folder: Path) -> tuple[Any, list[socket.socket]]:
    """Return a function that attacks all nodes of a plan, and the connections that it leaves open."""
    issue_certificates("other-run", ("worker-0", "worker-1"), folder / "other")
    stranger = NodeIdentity.read("worker-0", folder / "other" / "worker-0")
    slow: list[socket.socket] = []

    def attack(plan: Plan, openings: dict[str, bytes]) -> None:
        assert sorted(openings) == ["worker-0", "worker-1"], "the sniffer has seen all streams"
        data = {node.name: node.addresses.data for node in plan.nodes}
        control = {node.name: node.addresses.control for node in plan.nodes}
        for name, opening in openings.items():
            write_bytes(data[name], opening)
        proof = stranger.make_identity_proof("worker-1")
        write_bytes(data["worker-1"], LENGTH_FORMAT.pack(len(proof)) + proof)
        write_bytes(data["worker-1"], b"\xff" * 300)
        for address in (*data.values(), *control.values()):
            with suppress(ConnectionRefusedError):  # the coordinator has no data plane
                slow.append(socket.create_connection((address.host, address.port)))
        for address in control.values():
            write_bytes(address, b"\xff" * 300)

    return attack, slow


@pytest.mark.serial
@pytest.mark.slow_where(transport=["grpc"])
@pytest.mark.parametrize("transport", DATA_PLANES)
def test_attacks_do_not_change_the_result_of_a_trial(run_trial: Any, tmp_path: Path, transport: str) -> None:
    """The attacker sees all packets, connects to all ports, and has certificates of another run with the same names.

    The recorded openings of real streams are sent again, byte for byte.
    """
    attack, slow = make_attack(tmp_path)
    undisturbed, _, _ = run_trial("undisturbed", transport, None, sniff=False)
    attacked, folder, _ = run_trial("attacked", transport, attack, sniff=True)
    for connection in slow:
        connection.close()

    assert attacked.params_sha256 == undisturbed.params_sha256 != ""
    reasons = {
        name: [refused["reason"] for refused in refused_connections(read_lines(folder / f"logs/{name}.log"))]
        for name in ("worker-0", "worker-1")
    }
    for name, logged in reasons.items():
        replays = [reason for reason in logged if "was used before" in reason]
        assert len(replays) == 1, f"each opening was replayed once; {name} logs {logged}"
    if transport == "tcp":
        for expected in ("the stream's identity is not of this run", "proof of identity has 4294967295 bytes"):
            assert sum(expected in reason for reason in reasons["worker-1"]) == 1
    for name in ("coordinator", "worker-0", "worker-1"):
        errors = (folder / f"logs/{name}.err").read_text()
        assert errors.count("Handshake failed") == 1, "gRPC writes a line for the garbage on the control plane"
        assert "CallNextHandshakerLocked" not in errors, "lines of the log of handshakes are events, not errors"
