"""Nodes as containers: Compose for their life cycle, the engine's API for everything else, tc for their links."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import docker
import yaml
from docker.errors import DockerException, NotFound
from docker.models.containers import Container

from compose import shaping
from compose.authority import issue
from compose.engines.base import Engine, Preparing, Shaped, Status, Watcher
from compose.marks import NODE_LABEL, RUN_LABEL, TRIAL_LABEL, labels, secrets_prefix
from compose.render import Host, project, render
from compose.supervise import Nodes, Supervisor, Tail, TrialFailed
from services.component import Record
from services.control import OPEN_GATE
from services.errors import HostError
from services.plan import COORDINATOR, Address, Addressing, NodePlan, Place, Plan
from services.scenario import EngineName

IMAGES = {"cpu": "ensayo-node:cpu", "cuda": "ensayo-node:cuda"}
BUILD = Path(__file__).parents[2] / "images" / "build"
DATA_PORT, CONTROL_PORT = 7000, 7001
UNPRIVILEGED = "10001:10001"  # who nodes are when the runner is root
HELPERS = 8  # at a time
DOWN_AGAIN, DOWN_AGAIN_S = 5, 0.5
COMPOSE_S = 180.0  # for an engine that has stopped answering
START_INTERVAL_API = (1, 44)  # the first engine that knows a health check's start_interval
LAST_LINES = 20


class Subnets(Record):
    """The two networks of a run, /24 each."""

    data: str  # first three bytes
    control: str

    def place(self, number: int) -> Place:
        return Place(
            data=Address(host=f"{self.data}.{10 + number}", port=DATA_PORT),
            control=Address(host=f"{self.control}.{10 + number}", port=CONTROL_PORT),
        )


class DockerEngine(Engine):
    """One container per node."""

    name: ClassVar[EngineName] = "docker"

    def __init__(self) -> None:
        self._images = dict(IMAGES)

    def missing(self) -> str | None:
        try:
            with closing(docker.from_env(timeout=5)) as client:
                client.ping()
        except DockerException as error:
            return f"no Docker engine answers ({str(error).splitlines()[0][:120]})"
        compose = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)  # noqa: S607
        return None if compose.returncode == 0 else "`docker compose` is not installed"

    def prepare(self, watch: Preparing) -> None:
        watch.preparing("node image")
        self._images["cpu"] = _build("cpu")

    def facts(self) -> dict[str, Any]:
        with closing(docker.from_env()) as client:
            version, info = client.version(), client.info()
            return {
                "version": version["Version"],
                "api": version["ApiVersion"],
                "cgroup": info.get("CgroupVersion", "1"),
                "storage": info["Driver"],
                "images": {name: client.images.get(name).id for name in self._images.values() if _exists(client, name)},
            }

    def addressing(self, run: str, nodes: int) -> Addressing:  # noqa: ARG002 - a subnet is larger than any run
        """Subnets that no network of this host uses; the run's name decides where the search begins."""
        with closing(docker.from_env()) as client:
            used = {subnet for network in client.networks.list() for subnet in _subnets(network.attrs)}
        start = int(sha256(run.encode()).hexdigest(), 16)
        free = (f"10.{64 + (start + n) // 256 % 64}.{(start + n) % 256}" for n in range(256))
        found = [subnet for subnet in free if f"{subnet}.0/24" not in used][:2]
        return Subnets(data=found[0], control=found[1])

    def run(self, plan: Plan, folder: Path, watch: Watcher) -> Status:
        if any(node.device == "cuda" for node in plan.nodes):
            self._images["cuda"] = _build("cuda")  # takes no time once it is there
        with tempfile.TemporaryDirectory(prefix=secrets_prefix(plan)) as secrets:
            with closing(docker.from_env()) as client:
                host = _host(client, self._images, Path(secrets))
            issue(plan.run, (node.name for node in plan.nodes), Path(secrets))
            _hand_over(Path(secrets), host.user)
            nodes = Containers(plan, folder, host)
            return Supervisor(plan, nodes, Tail(folder / "logs" / f"{COORDINATOR}.log"), watch).run()


class Containers(Nodes):
    """The containers of one trial."""

    def __init__(self, plan: Plan, folder: Path, host: Host) -> None:
        self._plan = plan
        self._folder = folder
        self._host = host
        self._client = docker.from_env(max_pool_size=len(plan.nodes) + HELPERS)
        self._file = folder / "compose.yaml"
        self._containers: dict[str, Container] = {}
        self._exits: dict[str, int] = {}
        self._events: Any = None

    def start(self) -> None:
        self._file.write_text(yaml.safe_dump(render(self._plan, self._host), sort_keys=False))
        self._events = self._client.events(decode=True, filters={"label": self._label, "event": "die"})
        threading.Thread(target=self._collect_exits, daemon=True).start()
        self._compose("up", "--detach", "--no-build", "--pull", "never", "--quiet-pull")
        found = self._client.containers.list(all=True, filters={"label": self._label}, ignore_removed=True)
        self._containers = {container.labels[NODE_LABEL]: container for container in found}
        threading.Thread(target=self._follow, args=(COORDINATOR,), daemon=True).start()

    def shape(self) -> dict[str, Shaped]:
        linked = [node for node in self._plan.nodes if node.name != COORDINATOR]
        with ThreadPoolExecutor(HELPERS) as helpers:
            return dict(zip((node.name for node in linked), helpers.map(self._shape, linked), strict=True))

    def open_gate(self) -> None:
        self._containers[COORDINATOR].kill(signal=OPEN_GATE.name)

    def exit_codes(self) -> dict[str, int]:
        return dict(self._exits)

    def complaint(self, node: str) -> str:
        said: bytes = self._containers[node].logs(stdout=False, stderr=True, tail=LAST_LINES)
        return (said.decode(errors="replace").strip().splitlines() or [""])[-1]

    def stop(self) -> None:
        with ThreadPoolExecutor(HELPERS) as helpers:
            list(helpers.map(self._remove, self._containers.items()))
        self._down()
        if self._events is not None:
            self._events.close()
        self._client.close()

    def _down(self) -> None:
        """A busy engine lets go of a network's endpoints some time after their containers are gone."""
        for _ in range(DOWN_AGAIN):
            with suppress(TrialFailed):
                return self._compose("down", "--volumes", "--remove-orphans", "--timeout", "0")
            time.sleep(DOWN_AGAIN_S)
        return self._compose("down", "--volumes", "--remove-orphans", "--timeout", "0")

    @property
    def _label(self) -> str:
        return f"{TRIAL_LABEL}={self._plan.trial}"

    def _compose(self, *arguments: str) -> None:
        command = ["docker", "compose", "--project-name", project(self._plan), "--file", str(self._file)]
        # A session of its own: Ctrl-C must not reach Compose between two containers.
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments
                [*command, *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=COMPOSE_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as late:
            raise TrialFailed(f"docker compose {arguments[0]} took more than {COMPOSE_S:g} s") from late
        if done.returncode:
            raise TrialFailed(f"docker compose {arguments[0]}: {_last_line(done.stderr)}")

    def _collect_exits(self) -> None:
        """Remember exit codes as containers die; ends when the stream of events is closed."""
        with suppress(Exception):  # closing the stream under its reader raises whatever the socket felt like
            for event in self._events:
                attributes = event["Actor"]["Attributes"]
                if attributes.get(RUN_LABEL) == self._plan.run and attributes.get(NODE_LABEL) in self._names:
                    self._exits[attributes[NODE_LABEL]] = int(attributes["exitCode"])

    @property
    def _names(self) -> set[str]:
        return {node.name for node in self._plan.nodes}

    def _follow(self, node: str) -> None:
        """Write a node's log as it comes."""
        with suppress(NotFound), self._log(node).open("wb") as log:
            for chunk in self._containers[node].logs(stream=True, follow=True, stdout=True, stderr=False):
                log.write(chunk)
                log.flush()

    def _shape(self, node: NodePlan) -> Shaped:
        """Run the helper in the node's network namespace; it holds NET_ADMIN for as long as tc takes."""
        if node.uplink_bps is None and node.downlink_bps is None:
            return Shaped(rung="none")
        try:
            printed = self._client.containers.run(
                self._host.images["cpu"],
                [shaping.script(node, self._plan.dilation)],
                entrypoint=["/bin/sh", "-c"],
                network_mode=f"container:{self._containers[node.name].id}",
                user="0:0",
                cap_drop=["ALL"],
                cap_add=["NET_ADMIN"],
                security_opt=["no-new-privileges:true"],
                read_only=True,
                remove=True,
                labels=labels(self._plan, "shaper", f"shaper-{node.name}"),
            )
        except DockerException as error:
            raise TrialFailed(f"{node.name}: its link could not be shaped: {_last_line(str(error))}") from error
        uplink, downlink = shaping.read_back(node, self._plan.dilation, printed.decode())
        return Shaped(
            rung="tc-htb",
            uplink_bps=node.uplink_bps,
            downlink_bps=node.downlink_bps,
            read_back_uplink_bps=uplink,
            read_back_downlink_bps=downlink,
            details={
                "burst_bytes": shaping.burst_bytes(node.uplink_bps / self._plan.dilation) if node.uplink_bps else None
            },
        )

    def _remove(self, item: tuple[str, Container]) -> None:
        """Kill a container and keep what it has printed."""
        node, container = item
        with suppress(DockerException):
            container.kill()
        with suppress(DockerException):
            self._log(node).write_bytes(container.logs(stdout=True, stderr=False))
            container.remove(force=True)

    def _log(self, node: str) -> Path:
        return self._folder / "logs" / f"{node}.log"


def _build(target: str) -> str:
    """Build an image; the tag that names its content, since a build from another checkout may move the other one.

    Raises:
        HostError: it can't be built here.
    """
    built = subprocess.run(  # noqa: S603 - our own script
        [BUILD, target], capture_output=True, text=True, check=False, env=os.environ | {"PYTHON": sys.executable}
    )
    if built.returncode:
        raise HostError(f"images/build {target} failed:\n{built.stderr.strip()}")
    return built.stdout.split()[-1]


def _host(client: docker.DockerClient, images: dict[str, str], secrets: Path) -> Host:
    version = tuple(int(part) for part in client.version()["ApiVersion"].split("."))
    user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else UNPRIVILEGED
    gpu = "nvidia" in client.info().get("Runtimes", {}) and _exists(client, images["cuda"])
    return Host(images, secrets, user, gpu, fast_health=version >= START_INTERVAL_API)


def _hand_over(secrets: Path, user: str) -> None:
    """Compose mounts secrets as they lie: they must belong to who reads them."""
    if os.getuid() == 0:
        uid, gid = (int(part) for part in user.split(":"))
        for path in (secrets, *secrets.rglob("*")):
            os.chown(path, uid, gid)


def _exists(client: docker.DockerClient, image: str) -> bool:
    return bool(client.images.list(image))


def _subnets(attributes: dict[str, Any]) -> Iterator[str]:
    for config in (attributes.get("IPAM") or {}).get("Config") or ():
        yield config.get("Subnet", "")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
