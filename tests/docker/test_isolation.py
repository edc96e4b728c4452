"""What can't be done: the containers of a small trial wait at their gate while nodes and strangers try."""

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
from compose.engines.containers.engine import DockerEngine, NodeContainers, read_host_properties, set_secrets_owner
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.runs.certificates import issue_certificates
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, TRIAL_LABEL, container_labels, secrets_folder_prefix
from compose.scenario_files.load import load_scenario
from services.plan import Plan, make_plan
from services.plan.trial_outcome import LinkShapingRecord
from services.runtime import identity
from services.runtime.identity import CA_FILE, NodeIdentity
from services.runtime.run_log import LOG_LINE_PREFIX

pytestmark = pytest.mark.docker

SHARED = 4.0  # the engine works while nodes start, and another moment of the host may be slower, by this much
START_S = 30.0
LARGEST_IMAGE_BYTES = 400e6

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
BY_CONTROL = """
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
class Waiting:
    """A trial whose nodes are up and wait."""

    plan: Plan
    folder: Path
    secrets: Path
    client: Any
    image: str
    containers: dict[str, Any]
    shaped: dict[str, LinkShapingRecord]

    def inside(self, node: str, *command: str, user: str = "") -> tuple[int, str]:
        """Exit code and output of a command in a node's container."""
        code, output = self.containers[node].exec_run(list(command), user=user)
        return code, output.decode().strip()

    def stranger(self, network: str, script: str, **environment: str) -> str:
        """What a script says in a container that is not of the run but on one of its networks."""
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
def waiting(docker_engine: DockerEngine, pytestconfig: pytest.Config) -> Iterator[Waiting]:
    """One trial of two workers and a server for all tests here: none of them changes anything."""
    trials = load_scenario(pytestconfig.rootpath / "scenarios" / "smoke.yaml").trials()
    trial = next(trial for trial in trials if "ps_bsp" in trial.id)
    run = f"isolation-{time.time_ns():x}"
    plan = make_plan(trial, run, "docker", docker_engine.choose_addresses(run, 4))
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(prefix=secrets_folder_prefix(plan)) as secrets,
        closing(docker.from_env()) as client,
    ):
        issue_certificates(plan.run, (node.name for node in plan.nodes), Path(secrets))
        host = read_host_properties(client, docker_engine.images, Path(secrets))
        set_secrets_owner(Path(secrets), host.user)
        Path(folder, "logs").mkdir()
        Path(folder, "plan.json").write_text(plan.model_dump_json())
        nodes = NodeContainers(plan, Path(folder), host, docker_engine.choose_shaping_mechanisms(plan))
        try:
            nodes.start()
            shaped = nodes.shape_links()
            wanted = {"label": f"{TRIAL_LABEL}={plan.trial}"}
            found = [each for each in client.containers.list(filters=wanted) if each.labels["ensayo.run"] == run]
            containers = {each.labels[NODE_LABEL]: each for each in found if each.labels[ROLE_LABEL] != HELPER_ROLE}
            _await_start([each for name, each in containers.items() if name != "coordinator"])
            yield Waiting(plan, Path(folder), Path(secrets), client, host.images["cpu"], containers, shaped)
        finally:
            nodes.stop()


def test_a_worker_reaches_a_peers_data_port_over_the_shaped_network_only(waiting: Waiting) -> None:
    """Otherwise gradients could travel where nothing limits them."""
    place = waiting.plan.node_plan("worker-1").addresses
    connect = ("python", "-c", CONNECT)

    shaped = waiting.inside("worker-0", *connect, place.data.host, str(place.data.port))
    unshaped = waiting.inside("worker-0", *connect, place.control.host, str(place.data.port))

    assert shaped == (0, "OK")
    assert unshaped == (0, "ConnectionRefusedError")


def test_a_worker_reaches_no_data_address_through_its_unshaped_interface(waiting: Waiting) -> None:
    """A socket may be bound to the control network's interface: nobody there may answer when it asks for that address.

    That a packet is lost on its way is not enough: only some hosts filter what passes a bridge.
    """
    mine, peer = (waiting.plan.node_plan(name).addresses for name in ("worker-0", "worker-1"))
    target = (peer.data.host, str(peer.data.port))

    said = waiting.inside("worker-0", "python", "-c", BY_CONTROL, mine.control.host, *target)

    assert said == (0, "EHOSTUNREACH")


@pytest.mark.parametrize("user", ["", "0"])
def test_a_worker_cannot_change_its_own_link(waiting: Waiting, user: str) -> None:
    """Not even as root, since its container holds no capability."""
    _, interfaces = waiting.inside("worker-0", "ip", "-o", "link")

    for interface in [line.split(":")[1].split("@")[0].strip() for line in interfaces.splitlines()]:
        code, said = waiting.inside("worker-0", "tc", "qdisc", "replace", "dev", interface, "root", "pfifo", user=user)
        assert code != 0
        assert "Operation not permitted" in said


def test_the_kernel_enforces_what_was_declared(waiting: Waiting) -> None:
    """Read back from the kernel, both directions of every link."""
    assert set(waiting.shaped) == {"server-0", "worker-0", "worker-1"}
    for shaped in waiting.shaped.values():
        assert shaped.rung == "tc-htb"
        assert shaped.read_back_uplink_bps == shaped.uplink_bps == 100e6
        assert shaped.read_back_downlink_bps == shaped.downlink_bps == 100e6


@pytest.mark.parametrize("how", ["tls", "clear"])
def test_a_stranger_without_certificate_gets_no_answer_on_the_control_network(waiting: Waiting, how: str) -> None:
    """Even one that knows the authority's certificate: the handshake wants its own."""
    authority = (waiting.secrets / "coordinator" / CA_FILE).read_text()
    address = str(waiting.plan.node_plan("coordinator").addresses.control)

    said = waiting.stranger("control", CALL_HEALTH, CA=authority, NODE="coordinator", TARGET=address, HOW=how)

    assert said.startswith("UNAVAILABLE")


def test_a_stream_with_an_identity_of_this_run_is_accepted(waiting: Waiting) -> None:
    """The refusals below are about identities, and not about strangers' containers."""
    assert (
        _open(waiting, NodeIdentity.read("worker-1", waiting.secrets / "worker-1").make_identity_proof("worker-0"))
        == "OK"
    )


def test_a_stream_without_identity_is_refused(waiting: Waiting) -> None:
    assert _open(waiting, b"").startswith("UNAUTHENTICATED")


def test_a_stream_with_garbage_for_an_identity_is_refused(waiting: Waiting) -> None:
    assert _open(waiting, b"\x0a\xff\xff").startswith("UNAUTHENTICATED")


def test_a_stream_with_an_identity_of_another_run_is_refused(waiting: Waiting, tmp_path: Path) -> None:
    issue_certificates("another", ["worker-1"], tmp_path)
    other = NodeIdentity.read("worker-1", tmp_path / "worker-1")

    assert _open(waiting, other.make_identity_proof("worker-0")).startswith("UNAUTHENTICATED")


def test_a_stream_with_an_identity_for_another_receiver_is_refused(waiting: Waiting) -> None:
    mine = NodeIdentity.read("worker-1", waiting.secrets / "worker-1")

    assert _open(waiting, mine.make_identity_proof("server-0")).startswith("UNAUTHENTICATED")


def test_a_stream_with_an_old_identity_is_refused(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "time", lambda: time.time() - identity.PROOF_LIFETIME_S - 10)
    old = NodeIdentity.read("worker-1", waiting.secrets / "worker-1").make_identity_proof("worker-0")

    assert _open(waiting, old).startswith("UNAUTHENTICATED")


def test_every_node_answers_that_it_serves(waiting: Waiting) -> None:
    """The health check of the container, over mutual TLS."""
    for node in waiting.containers:
        assert waiting.inside(node, "python", "-m", "services.node", "health", node) == (0, "")


def test_a_node_is_up_soon_after_its_container(waiting: Waiting, capsys: pytest.CaptureFixture[str]) -> None:
    """A node serves before it logs its start; what that takes are imports of all at once, as slow as the host."""
    took = {name: _up_s(container) for name, container in waiting.containers.items() if name != "coordinator"}
    imports_s = _imports_s(waiting)

    with capsys.disabled():
        up = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
        print(f"\n  up after {up}; imports at once take {imports_s:.2f} s")  # noqa: T201
    assert max(took.values()) <= SHARED * imports_s


def test_the_image_is_small(waiting: Waiting) -> None:
    """Nodes hold only what a node needs."""
    assert waiting.client.images.get(waiting.image).attrs["Size"] < LARGEST_IMAGE_BYTES


def _await_start(containers: Iterable[Any]) -> None:
    """A busy host takes longer; how long is a test of its own."""
    deadline = time.monotonic() + START_S
    while not all(b"node_start" in container.logs() for container in containers):
        assert time.monotonic() < deadline, "not all nodes start"
        time.sleep(0.1)


def _open(waiting: Waiting, proof: bytes) -> str:
    """What a stranger hears that opens a stream to worker-0 with this proof."""
    return waiting.stranger(
        "data", OPEN_STREAM, TARGET=str(waiting.plan.node_plan("worker-0").addresses.data), PROOF=proof.hex()
    )


def _up_s(container: Any) -> float:
    started = datetime.fromisoformat(container.attrs["State"]["StartedAt"][:26] + "+00:00").timestamp()
    events = [
        json.loads(line.partition(LOG_LINE_PREFIX)[2])
        for line in container.logs().decode().splitlines()
        if LOG_LINE_PREFIX in line
    ]
    return float(next(event["time_ms"] for event in events if event["key"] == "node_start") / 1e3 - started)


def _imports_s(waiting: Waiting) -> float:
    """Until every node has imported what it begins with, all at once and each with a new interpreter."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(waiting.containers)) as pool:
        done = pool.map(
            lambda node: waiting.inside(node, "python", "-c", "import services.node.service"), waiting.containers
        )
        assert set(done) == {(0, "")}
    return time.monotonic() - began
