"""A trial of processes that is attacked while it trains has the same result as a trial that is not."""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from refused_connection_events import refused_connections

from compose.engines.local import LocalEngine
from compose.runs.certificates import issue_certificates
from services.cluster.addresses import Address
from services.plan import Plan, make_plan
from services.runtime.identity import NodeIdentity
from services.scenario.scenario import Scenario
from services.transport.data_planes import DATA_PLANES
from services.transport.tcp.sender import LENGTH_FORMAT

ETHERNET_BYTES, LOOPBACK = 14, "lo"


@dataclass
class AttackingObserver:
    """Observer that attacks after the first evaluation, and records the digest of the parameters."""

    attack: Any = None
    params_sha256: str = ""
    _events: list[str] = field(default_factory=list)

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        if log_event["key"] == "eval_stop" and self.attack and "eval_stop" not in self._events:
            self.attack(plan)
        self._events.append(str(log_event["key"]))
        if log_event["key"] == "params_sha256":
            self.params_sha256 = str(log_event["value"])

    def engine_preparation_started(self, description: str) -> None:
        """Ignore the preparation."""


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


def read_lines(file: Path) -> list[str]:
    """Return the lines of a log."""
    return file.read_text().splitlines()


def write_bytes(address: Address, data: bytes) -> None:
    """Write bytes to a new connection, and wait until the node closes it or answers."""
    with suppress(OSError), socket.create_connection((address.host, address.port), timeout=1.0) as connection:
        connection.sendall(data)
        connection.recv(1)


@pytest.fixture
def run_trial(tmp_path: Path) -> Any:
    """Return `run_trial(transport, attack)`, which runs a trial of two workers and returns its observer and folder."""
    engine = LocalEngine()

    def run(name: str, transport: str, attack: Any, *, sniff: bool) -> tuple[AttackingObserver, Path, dict[str, bytes]]:
        document = {
            "name": "attacked",
            "workload": {
                "dataset": {"kind": "digits"},
                "model": {"kind": "linear"},
                "optimiser": {"kind": "momentum", "rate": 0.05},
                "batch": 128,
                "epochs": 6,
            },
            "cluster": {"workers": 2, "worker": {"throughput": "4000/s", "uplink": "100mbit", "downlink": "100mbit"}},
            "strategies": {"ring": {"kind": "all_reduce"}},
            "transport": transport,
            "baseline": False,
        }
        (trial,) = Scenario.decode(document).trials()
        run_name = f"{tmp_path.name}-{os.getpid()}-{name}"
        plan = make_plan(trial, run_name, engine.name, engine.choose_addresses(run_name, 5))
        folder = tmp_path / name
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        ports = {node.addresses.data.port: node.name for node in plan.nodes if node.role == "worker"}
        observer = AttackingObserver(attack and (lambda plan: attack(plan, openings)))
        with recorded_openings(ports) if sniff else nullcontext({}) as openings:
            outcome = engine.run_trial(plan, folder, observer)
        assert (outcome.status, outcome.reason) == ("success", "")
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
