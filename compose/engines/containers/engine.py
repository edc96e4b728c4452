"""Nodes as containers: Compose for their life cycle, the engine's API for everything else, tc for their links."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import docker
from docker.errors import DockerException

from compose.engines.base import Engine, Preparing, Status, Watcher
from compose.engines.containers.compose_file import Host
from compose.engines.containers.containers import Containers
from compose.engines.containers.helper_containers import HELPER, capabilities
from compose.runs.certificates import issue
from compose.runs.interrupt import held_back
from compose.runs.labels import labels, secrets_prefix
from compose.runs.supervisor import Supervisor, Tail
from compose.shaping.mechanisms import TRIALS, Capability, Rungs, choose, needs_kernel
from services.cluster.addresses import Address, Addressing, Place
from services.plan import COORDINATOR, Plan
from services.scenario.scenario import EngineName
from services.schema.component import Record
from services.schema.errors import HostError

IMAGES = {"cpu": "ensayo-node:cpu", "cuda": "ensayo-node:cuda"}
BUILD = Path(__file__).parents[3] / "images" / "build"
DATA_PORT, CONTROL_PORT = 7000, 7001
UNPRIVILEGED = "10001:10001"  # who nodes are when the runner is root
START_INTERVAL_API = (1, 44)  # the first engine that knows a health check's start_interval


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
        self._kernel: set[Capability] | None = None  # what it can do to links, once it was tried
        self.images = dict(IMAGES)  # device -> tag; the one that names the content once it is built

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
        self.images["cpu"] = _build("cpu")

    def facts(self) -> dict[str, Any]:
        with closing(docker.from_env()) as client:
            version, info = client.version(), client.info()
            return {
                "version": version["Version"],
                "api": version["ApiVersion"],
                "cgroup": info.get("CgroupVersion", "1"),
                "storage": info["Driver"],
                "images": {name: client.images.get(name).id for name in self.images.values() if _exists(client, name)},
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
            self.images["cuda"] = _build("cuda")  # takes no time once it is there
        rungs = self.rungs(plan)
        if "transport" in (rungs.delay, rungs.loss):
            plan = plan.model_copy(update={"delay_rung": "transport"})
            (folder / "plan.json").write_text(plan.model_dump_json(indent=1))  # before any node reads it
        with tempfile.TemporaryDirectory(prefix=secrets_prefix(plan)) as secrets:
            with closing(docker.from_env()) as client:
                host = host_for(client, self.images, Path(secrets))
            issue(plan.run, (node.name for node in plan.nodes), Path(secrets))
            hand_over(Path(secrets), host.user)
            nodes = Containers(plan, folder, host, rungs)
            return Supervisor(plan, nodes, Tail(folder / "logs" / f"{COORDINATOR}.log"), watch).run()

    def rungs(self, plan: Plan) -> Rungs:
        """What serves each property of a plan on this kernel, which is tried out once.

        Raises:
            HostError: something declared can't be enforced here, or not as `strict` wants it.
        """
        return choose(plan, self.kernel(labels(plan, HELPER, "kernel")) if needs_kernel(plan) else ())

    def kernel(self, marks: Mapping[str, str]) -> set[Capability]:
        """What this kernel can do to links, tried out once, in the image of nodes and with what helpers may do.

        Args:
            marks: labels of the container, so that leftovers are found.

        Raises:
            TrialFailed: it can't be tried, as when there is no image.
        """
        if self._kernel is None:
            with held_back(), closing(docker.from_env()) as client:  # a stop in between would leave the container
                self._kernel = capabilities(client, self.images["cpu"], TRIALS, marks)
        return self._kernel


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


def host_for(client: docker.DockerClient, images: dict[str, str], secrets: Path) -> Host:
    """What a document needs to know of this host.

    Args:
        client: of the engine.
        images: of nodes by device.
        secrets: folder of the nodes' certificates and keys.
    """
    version = tuple(int(part) for part in client.version()["ApiVersion"].split("."))
    user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else UNPRIVILEGED
    gpu = "nvidia" in client.info().get("Runtimes", {}) and _exists(client, images["cuda"])
    return Host(images, secrets, user, gpu, fast_health=version >= START_INTERVAL_API)


def hand_over(secrets: Path, user: str) -> None:
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
