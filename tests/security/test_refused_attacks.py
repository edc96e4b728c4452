"""Each attack on a running trial is refused and recorded exactly once, and the result has the same bits as without it.

The attacker connects to all ports. It has certificates of another run, and in some attacks the key of a node.
"""

import os
import re
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from attacked_trial import read_lines, run_attacked_trial
from refused_connection_events import make_proof_in_other_name, refused_connections

from compose.engines.containers.engine import DockerEngine
from compose.engines.simulated import SimulatedEngine
from compose.runs.certificates import issue_certificates
from compose.runs.labels import SECRETS_PREFIX
from services.cluster.addresses import Address
from services.plan import COORDINATOR, Plan
from services.runtime.identity import NodeIdentity
from services.transport.grpc.channels import GRPC_OPTIONS
from services.transport.grpc.data_plane import IDENTITY_METADATA_KEY, SEND_METHOD
from services.transport.tcp.sender import LENGTH_FORMAT
from services.wire import control_pb2 as wire

GIGABYTE = 1 << 30
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA_FRAME, HEADERS_FRAME, SETTINGS_FRAME, END_HEADERS = 0, 1, 4, 4
GARBAGE = b"\xff" * 300
JOIN, HEARTBEAT = "/ensayo.wire.Control/Join", "/ensayo.wire.Control/SendHeartbeat"


@dataclass
class Attacker:
    """Process that attacks the nodes of one trial."""

    plan: Plan
    folder: Path  # for certificates of another run
    open_connections: list[socket.socket] = field(default_factory=list)

    def data_address(self, node: str) -> Address:
        return self.plan.node_plan(node).addresses.data

    def control_address(self, node: str) -> Address:
        return self.plan.node_plan(node).addresses.control

    def stolen_identity(self, node: str) -> NodeIdentity:
        """Return the identity of a node of the trial, as the node itself has it."""
        (secrets,) = Path(tempfile.gettempdir()).glob(f"{SECRETS_PREFIX}{self.plan.run}-*")
        return NodeIdentity.read(node, secrets / node)

    def identity_of_other_run(self, node: str) -> NodeIdentity:
        if not (self.folder / node).exists():
            issue_certificates("other-run", (node,), self.folder)
        return NodeIdentity.read(node, self.folder / node)

    def send(self, address: Address, data: bytes) -> None:
        """Send bytes on a new connection, and wait until the node closes it, at most a second."""
        with suppress(OSError), socket.create_connection((address.host, address.port), timeout=1.0) as connection:
            connection.sendall(data)
            while connection.recv(1 << 16):
                pass

    def send_slowly(self, address: Address, first_bytes: bytes = b"") -> None:
        """Open a connection and send nothing more on it, until the end of the trial."""
        connection = socket.create_connection((address.host, address.port))
        connection.sendall(first_bytes)
        self.open_connections.append(connection)

    def shake_hands(self, address: Address, with_certificate_of: NodeIdentity | None) -> None:
        """Try a TLS handshake, without or with a certificate."""
        context = self._make_context(with_certificate_of)
        with suppress(OSError), self._connect(address, context) as stream:
            stream.recv(1)

    def call(self, address: Address, name: str, identity: NodeIdentity, method: str, request: bytes) -> None:
        """Call a method of a control server with the certificate of a node; the call must fail."""
        credentials = grpc.ssl_channel_credentials(identity.ca_certificate, identity.private_key, identity.certificate)
        options = (*GRPC_OPTIONS, ("grpc.ssl_target_name_override", name))
        with grpc.secure_channel(str(address), credentials, options) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(method)(request, timeout=20.0)

    def announce_gigabyte(self, address: Address, method: str, identity: NodeIdentity | None = None) -> None:
        """Begin a call of gRPC whose message has 1 GB by its prefix, and wait a second for the end of the call."""
        headers = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x", "te": "trailers"}
        headers["content-type"] = "application/grpc"
        header_block = b"".join(
            b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in item) for item in headers.items()
        )
        message = b"\0" + struct.pack(">I", GIGABYTE) + bytes(1000)
        frames = [
            (SETTINGS_FRAME, 0, 0, b""),
            (HEADERS_FRAME, END_HEADERS, 1, header_block),
            (DATA_FRAME, 0, 1, message),
        ]
        request = HTTP2_PREFACE + b"".join(
            len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
            for kind, flags, stream, payload in frames
        )
        context = None if identity is None else self._make_context(identity)
        with suppress(OSError), self._connect(address, context) as stream:
            stream.sendall(request)
            while stream.recv(1 << 16):
                pass

    def _connect(self, address: Address, context: ssl.SSLContext | None) -> socket.socket:
        connection = socket.create_connection((address.host, address.port), timeout=2.0)
        if context is None:
            return connection
        try:
            return context.wrap_socket(connection)
        except OSError:
            connection.close()
            raise

    def _make_context(self, identity: NodeIdentity | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if identity is None:
            return context
        with tempfile.NamedTemporaryFile() as file:
            file.write(identity.certificate + identity.private_key)
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def open_stream(self, node: str, proof: bytes | None, message: bytes = b"") -> None:
        """Open a data stream of gRPC with this proof, and send a message; the stream must be refused."""
        metadata = () if proof is None else ((IDENTITY_METADATA_KEY, proof),)
        with grpc.insecure_channel(str(self.data_address(node)), GRPC_OPTIONS) as channel, pytest.raises(grpc.RpcError):
            channel.stream_unary(SEND_METHOD)(iter([message]), metadata=metadata, timeout=20.0)

    def send_proof(self, node: str, proof: bytes) -> None:
        """Open a data stream in the format of the plane of the trial."""
        if self.plan.transport == "grpc":
            self.open_stream(node, proof)
        else:
            self.send(self.data_address(node), LENGTH_FORMAT.pack(len(proof)) + proof)


Attack = Callable[[Attacker], object]


def join_as(name: str) -> bytes:
    return wire.JoinRequest(node_name=name, plan_sha256="").SerializeToString()  # type: ignore[no-any-return]


def send_wrong_rank(attacker: Attacker) -> None:
    liar, claimed = attacker.stolen_identity(COORDINATOR), attacker.stolen_identity("worker-0")
    attacker.send_proof("worker-1", make_proof_in_other_name(liar, claimed, "worker-1", time.time()))


# Node that refuses, text of the reason, attack.
CONTROL_ATTACKS: dict[str, tuple[str, str, Attack]] = {
    "no certificate": (
        "worker-0",
        "it has no certificate",
        lambda a: a.shake_hands(a.control_address("worker-0"), None),
    ),
    "another run's certificate": (
        COORDINATOR,
        "its certificate is not of this run",
        lambda a: a.shake_hands(a.control_address(COORDINATOR), a.identity_of_other_run("worker-0")),
    ),
    "garbage": (COORDINATOR, "it does not speak TLS", lambda a: a.send(a.control_address(COORDINATOR), GARBAGE)),
    "slow sender": (
        COORDINATOR,
        "it (did not complete the TLS handshake|made no call of this trial)",
        lambda a: a.send_slowly(a.control_address(COORDINATOR), b"\x16"),
    ),
    "wrong rank": (
        COORDINATOR,
        r"a call with the certificate of \['worker-1'\] can't be made for node worker-0",
        lambda a: a.call(
            a.control_address(COORDINATOR), COORDINATOR, a.stolen_identity("worker-1"), JOIN, join_as("worker-0")
        ),
    ),
    "garbage in a call": (
        COORDINATOR,
        "300 bytes are not a valid request of /ensayo.wire.Control/SendHeartbeat",
        lambda a: a.call(
            a.control_address(COORDINATOR), COORDINATOR, a.stolen_identity("worker-1"), HEARTBEAT, GARBAGE
        ),
    ),
    "unknown method": (
        COORDINATOR,
        "the method /ensayo.wire.Control/Shutdown does not exist",
        lambda a: a.call(
            a.control_address(COORDINATOR),
            COORDINATOR,
            a.stolen_identity("worker-1"),
            "/ensayo.wire.Control/Shutdown",
            b"",
        ),
    ),
    "1 GB message": (
        COORDINATOR,
        "a request of /ensayo.wire.Control/Join is longer than the limit of [0-9,]+ bytes",
        lambda a: a.announce_gigabyte(a.control_address(COORDINATOR), JOIN, a.stolen_identity("worker-1")),
    ),
}
DATA_ATTACKS: dict[str, tuple[str, Attack]] = {
    "another run's certificate": (
        "the stream's identity is not of this run",
        lambda a: a.send_proof("worker-1", a.identity_of_other_run("worker-0").make_identity_proof("worker-1")),
    ),
    "wrong rank": ("the stream's identity is not of this run", send_wrong_rank),
    "garbage": (
        "(it made no call of this trial|proof of identity has 4294967295 bytes)",
        lambda a: a.send(a.data_address("worker-1"), GARBAGE),
    ),
    "slow sender": (
        "(it made no call of this trial|proof of identity)",
        lambda a: a.send_slowly(a.data_address("worker-1"), b"P"),
    ),
}
GRPC_DATA_ATTACKS: dict[str, tuple[str, Attack]] = {
    "no certificate": (
        "the stream carries no identity proof of its sender",
        lambda a: a.open_stream("worker-1", None),
    ),
    "1 GB message": (
        "the stream carries no identity proof of its sender",
        lambda a: a.announce_gigabyte(a.data_address("worker-1"), SEND_METHOD),
    ),
}
TCP_DATA_ATTACKS: dict[str, tuple[str, Attack]] = {
    "1 GB message": (
        "proof of identity has 1073741824 bytes",
        lambda a: a.send(a.data_address("worker-1"), LENGTH_FORMAT.pack(GIGABYTE) + GARBAGE),
    ),
}
TLS_DATA_ATTACKS: dict[str, tuple[str, Attack]] = {
    "no certificate": ("(?i)certificate", lambda a: a.shake_hands(a.data_address("worker-1"), None)),
    "another run's certificate": (
        "(?i)certificate",
        lambda a: a.shake_hands(a.data_address("worker-1"), a.identity_of_other_run("worker-0")),
    ),
    "garbage": ("TLS", lambda a: a.send(a.data_address("worker-1"), GARBAGE)),
}
CASES = [
    *(("tcp", "signed", name, *case) for name, case in CONTROL_ATTACKS.items()),
    *((plane, "signed", name, "worker-1", *case) for plane in ("grpc", "tcp") for name, case in DATA_ATTACKS.items()),
    *(("grpc", "signed", name, "worker-1", *case) for name, case in GRPC_DATA_ATTACKS.items()),
    *(("tcp", "signed", name, "worker-1", *case) for name, case in TCP_DATA_ATTACKS.items()),
    *((plane, "tls", name, "worker-1", *case) for plane in ("grpc", "tcp") for name, case in TLS_DATA_ATTACKS.items()),
]


EPOCHS_OF_MANY_ATTACKS = 100  # 20 s: the last attack finds a trial that still trains


@pytest.fixture(scope="module")
def undisturbed_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the parameters of a trial without an attack; data planes and their protection do not change it."""
    return run_attacked_trial(tmp_path_factory.mktemp("undisturbed") / "trial", "tcp", "signed", None).params_sha256


def reasons_by_node(folder: Path) -> dict[str, list[str]]:
    """Return the reasons of all rejections in the logs of a trial, by node, without nodes that refused nothing."""
    logs = {log.stem: refused_connections(read_lines(log)) for log in (folder / "logs").glob("*.log")}
    return {node: [event["reason"] for event in events] for node, events in logs.items() if events}


@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.parametrize(
    ("plane", "security", "node", "reason", "attack"),
    [(plane, security, node, reason, attack) for plane, security, _, node, reason, attack in CASES],
    ids=[f"{plane}, {security}, {node}: {name}" for plane, security, name, node, _, _ in CASES],
)
def test_an_attack_is_refused_and_recorded_once_and_does_not_change_the_result(
    tmp_path: Path, undisturbed_digest: str, plane: str, security: str, node: str, reason: str, attack: Attack
) -> None:
    attackers: list[Attacker] = []

    def attack_trial(plan: Plan) -> None:
        attackers.append(Attacker(plan, tmp_path / "other"))
        attack(attackers[0])

    trial = run_attacked_trial(tmp_path / "attacked", plane, security, attack_trial)
    for connection in attackers[0].open_connections:
        connection.close()

    assert trial.params_sha256 == undisturbed_digest != ""
    (recorded,) = reasons_by_node(tmp_path / "attacked").items()
    assert recorded[0] == node
    assert len(recorded[1]) == 1, recorded[1]
    assert re.search(reason, recorded[1][0]), recorded[1]


@pytest.mark.serial
def test_a_trial_without_an_attack_records_nothing(tmp_path: Path) -> None:
    """Connections of the nodes themselves must not be taken for refused ones, on any plane."""
    run_attacked_trial(tmp_path / "undisturbed", "grpc", "tls", None)

    assert reasons_by_node(tmp_path / "undisturbed") == {}
    assert list((tmp_path / "undisturbed" / "logs").glob("*.err")) == [], "nothing of the log of handshakes is left"
    assert os.environ.get("GRPC_TRACE") is None


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(("plane", "security"), sorted({case[:2] for case in CASES}))
def test_containers_refuse_and_record_each_of_many_attacks_once(
    tmp_path: Path, docker_engine: DockerEngine, plane: str, security: str
) -> None:
    """All attacks of the list on one trial, from outside of its containers; engines agree on the undisturbed result."""
    attacks = [case[2:] for case in CASES if case[:2] == (plane, security)]
    undisturbed = run_attacked_trial(
        tmp_path / "undisturbed", plane, security, None, SimulatedEngine(), EPOCHS_OF_MANY_ATTACKS
    )
    attackers: list[Attacker] = []

    def attack_trial(plan: Plan) -> None:
        attackers.append(Attacker(plan, tmp_path / "other"))
        for _, _, _, attack in attacks:
            attack(attackers[0])

    trial = run_attacked_trial(
        tmp_path / "attacked", plane, security, attack_trial, docker_engine, EPOCHS_OF_MANY_ATTACKS
    )
    for connection in attackers[0].open_connections:
        connection.close()

    assert trial.params_sha256 == undisturbed.params_sha256 != ""
    by_node = reasons_by_node(tmp_path / "attacked")
    recorded = [(node, reason) for node, reasons in by_node.items() for reason in reasons]
    assert len(recorded) == len(attacks), recorded
    for name, refusing_node, pattern, _ in attacks:
        assert any(node == refusing_node and re.search(pattern, text) for node, text in recorded), (name, recorded)
