"""Isolation of containers: nodes of a waiting trial, and unknown nodes, try actions that must be impossible."""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import docker
import pytest

from compose.engines.containers.compose_file import compose_project_name
from compose.engines.containers.engine import DockerEngine, NodeContainers, read_host_properties, set_owner_of_nodes
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.runs.certificates import issue_certificates
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, TRIAL_LABEL, container_labels
from compose.runs.secrets_folder import open_secrets_folder
from compose.scenario_files.load import load_scenario
from services.plan import Plan, make_plan
from services.plan.trial_outcome import LinkShapingRecord
from services.runtime import identity
from services.runtime.identity import CA_FILE, NodeIdentity
from services.runtime.run_log import LOG_LINE_PREFIX

pytestmark = pytest.mark.docker

MAX_IMPORT_TIME_RATIO = 4.0  # Docker works while nodes start, and the host may be slower at other times
START_TIMEOUT_S = 30.0
MAX_IMAGE_BYTES = 400e6

CALL_HEALTH = """
import grpc, os
credentials = grpc.ssl_channel_credentials(os.environ["CA"].encode())
options = (("grpc.ssl_target_name_override", os.environ["NODE"]), ("grpc.enable_http_proxy", 0))
channel = {
    "tls": lambda: grpc.secure_channel(os.environ["TARGET"], credentials, options),
    "clear": lambda: grpc.insecure_channel(os.environ["TARGET"], options),
}[os.environ["HOW"]]()
try:
    channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=5)
    print("OK")
except grpc.RpcError as error:
    print(error.code().name, error.details())
"""
OPEN_STREAM = """
import grpc, os
channel = grpc.insecure_channel(os.environ["TARGET"], (("grpc.enable_http_proxy", 0),))
proof = bytes.fromhex(os.environ["PROOF"])
metadata = (("ensayo-identity-bin", proof),) if proof else ()
try:
    channel.stream_unary("/ensayo.wire.Data/SendMessages")(iter(()), metadata=metadata, timeout=5)
    print("OK")
except grpc.RpcError as error:
    print(error.code().name, error.details())
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)
    print("OK")
except OSError as error:
    print(type(error).__name__)
"""
CONNECT_THROUGH_CONTROL_INTERFACE = """
import errno, socket, subprocess, sys
mine, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
shown = subprocess.run(["ip", "-o", "-4", "addr", "show", "to", mine], capture_output=True, text=True, check=True)
bound = socket.socket()
bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, shown.stdout.split()[1].encode())
bound.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)  # not by a gateway
bound.settimeout(10)
try:
    bound.connect((host, port))
    print("OK")
except OSError as error:
    print(errno.errorcode.get(error.errno, type(error).__name__))
"""


@dataclass
class WaitingTrial:
    """A trial whose nodes have started and wait for training."""

    plan: Plan
    folder: Path
    secrets: Path
    client: Any
    image: str
    containers: dict[str, Any]
    shaping: dict[str, LinkShapingRecord]

    def run_in_node(self, node: str, *command: str, user: str = "") -> tuple[int, str]:
        """Return the exit code and output of a command in a node's container."""
        code, output = self.containers[node].exec_run(list(command), user=user)
        return code, output.decode().strip()

    def run_in_unknown_container(self, network: str, script: str, **environment: str) -> str:
        """Return the output of a script in a container outside the run, but on one of its networks."""
        output = self.client.containers.run(
            self.image,
            ["-c", script],
            entrypoint=["python"],
            network=f"{compose_project_name(self.plan)}_{network}",
            environment=environment,
            labels=container_labels(self.plan, "stranger", "stranger"),
            remove=True,
        )
        return str(output.decode().strip())


@pytest.fixture(scope="module")
def waiting_trial(docker_engine: DockerEngine, pytestconfig: pytest.Config) -> Iterator[WaitingTrial]:
    """Return one trial of two workers and a server for all tests of this module: none of them changes it."""
    trials = load_scenario(pytestconfig.rootpath / "scenarios" / "smoke.yaml").trials()
    trial = next(trial for trial in trials if "ps_bsp" in trial.id)
    run = f"isolation-{time.time_ns():x}"
    plan = make_plan(trial, run, "docker", docker_engine.choose_addresses(run, 4))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_secrets_folder(plan.run, (node.name for node in plan.nodes)) as secrets,
        closing(docker.from_env()) as client,
    ):
        host = read_host_properties(client, docker_engine.images, secrets)
        set_owner_of_nodes(secrets, host.user)
        Path(folder, "logs").mkdir()
        Path(folder, "plan.json").write_text(plan.model_dump_json())
        nodes = NodeContainers(plan, Path(folder), host, docker_engine.choose_shaping_mechanisms(plan))
        try:
            nodes.start()
            shaping = nodes.shape_links()
            label_filter = {"label": f"{TRIAL_LABEL}={plan.trial}"}
            trial_containers = [
                container
                for container in client.containers.list(filters=label_filter)
                if container.labels["ensayo.run"] == run
            ]
            containers = {
                container.labels[NODE_LABEL]: container
                for container in trial_containers
                if container.labels[ROLE_LABEL] != HELPER_ROLE
            }
            _wait_until_nodes_have_started(
                [container for name, container in containers.items() if name != "coordinator"]
            )
            yield WaitingTrial(plan, Path(folder), secrets, client, host.images["cpu"], containers, shaping)
        finally:
            nodes.stop()


def test_a_worker_reaches_a_peers_data_port_only_over_the_shaped_network(waiting_trial: WaitingTrial) -> None:
    """Otherwise gradients could be sent where no limit applies."""
    peer_addresses = waiting_trial.plan.node_plan("worker-1").addresses
    connect_command = ("python", "-c", CONNECT)

    over_shaped_network = waiting_trial.run_in_node(
        "worker-0", *connect_command, peer_addresses.data.host, str(peer_addresses.data.port)
    )
    over_control_network = waiting_trial.run_in_node(
        "worker-0", *connect_command, peer_addresses.control.host, str(peer_addresses.data.port)
    )

    assert over_shaped_network == (0, "OK")
    assert over_control_network == (0, "ConnectionRefusedError")


def test_a_worker_reaches_no_data_address_through_its_unshaped_interface(waiting_trial: WaitingTrial) -> None:
    """A worker may bind a socket to the interface of the control network: no node there may answer its ARP request.

    A packet that is lost on its way is not enough: only some hosts filter the packets that cross a bridge.
    """
    own_addresses, peer_addresses = (waiting_trial.plan.node_plan(name).addresses for name in ("worker-0", "worker-1"))
    target = (peer_addresses.data.host, str(peer_addresses.data.port))

    result = waiting_trial.run_in_node(
        "worker-0", "python", "-c", CONNECT_THROUGH_CONTROL_INTERFACE, own_addresses.control.host, *target
    )

    assert result == (0, "EHOSTUNREACH")


@pytest.mark.parametrize("user", ["", "0"])
def test_a_worker_cannot_change_its_own_link(waiting_trial: WaitingTrial, user: str) -> None:
    """Not even root can, since the container has no capability."""
    _, interfaces = waiting_trial.run_in_node("worker-0", "ip", "-o", "link")

    for interface in [line.split(":")[1].split("@")[0].strip() for line in interfaces.splitlines()]:
        code, output = waiting_trial.run_in_node(
            "worker-0", "tc", "qdisc", "replace", "dev", interface, "root", "pfifo", user=user
        )
        assert code != 0
        assert "Operation not permitted" in output


def test_the_kernel_enforces_the_declared_rates(waiting_trial: WaitingTrial) -> None:
    """The rates are read back from the kernel, for both directions of every link."""
    assert set(waiting_trial.shaping) == {"server-0", "worker-0", "worker-1"}
    for link_record in waiting_trial.shaping.values():
        assert link_record.rung == "tc-htb"
        assert link_record.read_back_uplink_bps == link_record.uplink_bps == 100e6
        assert link_record.read_back_downlink_bps == link_record.downlink_bps == 100e6


@pytest.mark.parametrize("channel", ["tls", "clear"])
def test_an_unknown_node_without_certificate_gets_no_answer_on_the_control_network(
    waiting_trial: WaitingTrial, channel: str
) -> None:
    """The authority's certificate alone is not enough: the handshake requires a certificate of the node."""
    authority = (waiting_trial.secrets / "coordinator" / CA_FILE).read_text()
    address = str(waiting_trial.plan.node_plan("coordinator").addresses.control)

    output = waiting_trial.run_in_unknown_container(
        "control", CALL_HEALTH, CA=authority, NODE="coordinator", TARGET=address, HOW=channel
    )

    assert output.startswith("UNAVAILABLE")


def test_a_stream_with_an_identity_of_this_run_is_accepted(waiting_trial: WaitingTrial) -> None:
    """It shows that the tests below fail for the identity, and not because the container is unknown."""
    assert (
        _open_stream(
            waiting_trial,
            NodeIdentity.read("worker-1", waiting_trial.secrets / "worker-1").make_identity_proof("worker-0"),
        )
        == "OK"
    )


def test_a_stream_without_identity_is_rejected(waiting_trial: WaitingTrial) -> None:
    assert _open_stream(waiting_trial, b"").startswith("UNAUTHENTICATED")


def test_a_stream_with_an_unreadable_identity_is_rejected(waiting_trial: WaitingTrial) -> None:
    assert _open_stream(waiting_trial, b"\x0a\xff\xff").startswith("UNAUTHENTICATED")


def test_a_stream_with_an_identity_of_another_run_is_rejected(waiting_trial: WaitingTrial, tmp_path: Path) -> None:
    issue_certificates("another", ["worker-1"], tmp_path)
    other_identity = NodeIdentity.read("worker-1", tmp_path / "worker-1")

    assert _open_stream(waiting_trial, other_identity.make_identity_proof("worker-0")).startswith("UNAUTHENTICATED")


def test_a_stream_with_an_identity_for_another_receiver_is_rejected(waiting_trial: WaitingTrial) -> None:
    worker_identity = NodeIdentity.read("worker-1", waiting_trial.secrets / "worker-1")

    assert _open_stream(waiting_trial, worker_identity.make_identity_proof("server-0")).startswith("UNAUTHENTICATED")


def test_a_stream_with_an_expired_identity_is_rejected(
    waiting_trial: WaitingTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "time", lambda: time.time() - identity.PROOF_LIFETIME_S - 10)
    expired_proof = NodeIdentity.read("worker-1", waiting_trial.secrets / "worker-1").make_identity_proof("worker-0")

    assert _open_stream(waiting_trial, expired_proof).startswith("UNAUTHENTICATED")


def test_the_health_check_of_every_node_succeeds(waiting_trial: WaitingTrial) -> None:
    """This is the health check of the container, over mutual TLS."""
    for node in waiting_trial.containers:
        assert waiting_trial.run_in_node(node, "python", "-m", "services.node", "health", node) == (0, "")


@pytest.mark.wall_clock
def test_a_node_logs_its_start_soon_after_its_container_started(
    waiting_trial: WaitingTrial, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node serves before it logs its start. That takes as long as the imports of all nodes at once on this host."""
    start_s = {
        name: _seconds_to_node_start(container)
        for name, container in waiting_trial.containers.items()
        if name != "coordinator"
    }
    imports_s = _measure_imports_s(waiting_trial)

    with capsys.disabled():
        start_times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in start_s.items())
        print(f"\n  up after {start_times}; imports at once take {imports_s:.2f} s")  # noqa: T201
    assert max(start_s.values()) <= MAX_IMPORT_TIME_RATIO * imports_s


def test_the_size_of_the_image_is_limited(waiting_trial: WaitingTrial) -> None:
    """The image contains only the software that a node needs."""
    assert waiting_trial.client.images.get(waiting_trial.image).attrs["Size"] < MAX_IMAGE_BYTES


def _wait_until_nodes_have_started(containers: Iterable[Any]) -> None:
    """Wait for the start of all nodes; another test checks how long it takes."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not all(b"node_start" in container.logs() for container in containers):
        assert time.monotonic() < deadline, "not all nodes start"
        time.sleep(0.1)


def _open_stream(waiting_trial: WaitingTrial, proof: bytes) -> str:
    """Return the answer to an unknown container that opens a stream to worker-0 with this proof."""
    return waiting_trial.run_in_unknown_container(
        "data", OPEN_STREAM, TARGET=str(waiting_trial.plan.node_plan("worker-0").addresses.data), PROOF=proof.hex()
    )


def _seconds_to_node_start(container: Any) -> float:
    started = datetime.fromisoformat(container.attrs["State"]["StartedAt"][:26] + "+00:00").timestamp()
    events = [
        json.loads(line.partition(LOG_LINE_PREFIX)[2])
        for line in container.logs().decode().splitlines()
        if LOG_LINE_PREFIX in line
    ]
    return float(next(event["time_ms"] for event in events if event["key"] == "node_start") / 1e3 - started)


def _measure_imports_s(waiting_trial: WaitingTrial) -> float:
    """Return the seconds that all nodes need to import the node's modules at once, each in a new interpreter."""
    started = time.monotonic()
    with ThreadPoolExecutor(len(waiting_trial.containers)) as pool:
        results = pool.map(
            lambda node: waiting_trial.run_in_node(node, "python", "-c", "import services.node.service"),
            waiting_trial.containers,
        )
        assert set(results) == {(0, "")}
    return time.monotonic() - started
