"""Engine `docker`: every node is a Docker container, and `tc` shapes the containers' links.

Docker Compose starts and removes the containers.
"""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import docker
from docker.errors import DockerException

from compose.engines.base import EnginePreparationObserver, TrialEngine, TrialEventObserver
from compose.engines.containers.compose_file import DockerHostProperties
from compose.engines.containers.containers import NodeContainers
from compose.engines.containers.helper_containers import HELPER_ROLE, probe_kernel_features
from compose.engines.containers.node_image.build import IMAGE_TAGS, build_command_image, build_node_image
from compose.engines.containers.node_image.packages import check_host_pythons
from compose.engines.containers.subnet_reservations import SubnetReservations
from compose.host.host_facts import container_user
from compose.runs.interrupt import defer_stop_signals
from compose.runs.labels import container_labels
from compose.runs.secrets_folder import open_secrets_folder
from compose.runs.trials.supervisor import TrialSupervisor
from compose.shaping.mechanisms import (
    FEATURE_TEST_COMMANDS,
    ChosenMechanisms,
    KernelFeatureName,
    choose_shaping_mechanisms,
    needs_kernel_shaping,
)
from services.checkpoints.folder import FOLDER_NAME as CHECKPOINTS_FOLDER
from services.cluster.addresses import Address, AddressAllocator, NodeAddresses
from services.plan import CommandPlan, Plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.run_settings import EngineName
from services.schema.component import FrozenRecord
from services.schema.errors import HostError

DATA_PORT, CONTROL_PORT = 7000, 7001
NO_GPU_RUNTIME = "Docker has no runtime nvidia"
START_INTERVAL_API_VERSION = (1, 44)  # first version of Docker's API with the health check option start_interval


class RunSubnets(FrozenRecord):
    """The two IPv4 subnets of a run, /24 each.

    A field holds the first three bytes, such as `10.64.0`.
    """

    data: str
    control: str

    def node_addresses(self, node_index: int) -> NodeAddresses:
        """Return the data address and the control address of a node.

        `node_index` is counted from 0.
        """
        return NodeAddresses(
            data=Address(host=f"{self.data}.{10 + node_index}", port=DATA_PORT),
            control=Address(host=f"{self.control}.{10 + node_index}", port=CONTROL_PORT),
        )


class DockerEngine(TrialEngine):
    """Engine that runs every node in a Docker container of its own."""

    name: ClassVar[EngineName] = "docker"

    def __init__(self) -> None:
        """Create the engine without contacting Docker."""
        self._features: set[KernelFeatureName] | None = None  # of the kernel; None until they are probed
        # device, or id of an image of the user -> tag; after the build, the tag with the hash of the image's sources
        self.images: dict[str, str] = {**IMAGE_TAGS}
        self._report_preparation: Callable[[str], None] = lambda _: None
        self._reservations = SubnetReservations()

    def missing_software(self) -> str | None:
        """Return the reason why this host can't run containers.

        The reason is a missing Docker daemon or a missing Compose plug-in. Return None if it can.
        """
        try:
            with closing(docker.from_env(timeout=5)) as client:
                client.ping()
        except DockerException as error:
            return f"the Docker daemon does not answer ({str(error).splitlines()[0][:120]})"
        compose = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)  # noqa: S607
        return None if compose.returncode == 0 else "the Docker Compose plug-in (`docker compose`) is not installed"

    def missing_gpu_reason(self) -> str | None:
        """Return why containers have no GPU on this host; None if they have one."""
        with closing(docker.from_env()) as client:
            return None if _has_gpu_runtime(client) else NO_GPU_RUNTIME

    def prepare(self, preparation_observer: EnginePreparationObserver) -> None:
        """Build the CPU image of the nodes, unless it exists.

        The CUDA image is built when a trial plan needs it.
        """
        self._report_preparation = preparation_observer.engine_preparation_started
        self.images["cpu"] = build_node_image("cpu", self._report_preparation)

    def check_plans(self, plans: Sequence[Plan]) -> None:
        """Check that containers can import packages of the host: they have the same minor version of Python.

        Images of the user are made images of nodes here, unless that was done before.

        Raises:
            HostError: they have another version, or an image can't be built.
        """
        for plan in plans:
            self._build_image_of_command(plan)
        check_host_pythons(plans)

    def describe_engine_versions(self) -> dict[str, Any]:
        """Return versions of Docker and its API, the cgroup version, the storage driver and the image digests."""
        with closing(docker.from_env()) as client:
            version, info = client.version(), client.info()
            return {
                "version": version["Version"],
                "api": version["ApiVersion"],
                "cgroup": info.get("CgroupVersion", "1"),
                "storage": info["Driver"],
                "images": {tag: client.images.get(tag).id for tag in self.images.values() if _has_image(client, tag)},
            }

    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:  # noqa: ARG002 - a subnet is larger than any run
        """Return two /24 subnets that no Docker network and no other run of this host uses.

        The search starts at an address derived from the run's name. The subnets are reserved until `close`.

        Raises:
            HostError: there are no two free subnets among those that were searched.
        """
        with closing(docker.from_env()) as client:
            used_subnets = {subnet for network in client.networks.list() for subnet in _network_subnets(network.attrs)}
        start = int(sha256(run_name.encode()).hexdigest(), 16)
        prefixes = (f"10.{64 + (start + n) // 256 % 64}.{(start + n) % 256}" for n in range(256))
        free_prefixes = (prefix for prefix in prefixes if f"{prefix}.0/24" not in used_subnets)
        match self._reservations.reserve_first(free_prefixes, 2):
            case data, control:
                return RunSubnets(data=data, control=control)
        raise HostError("a run needs two free subnets of 10.64.0.0/10; remove Docker networks, or end other runs")

    def close(self) -> None:
        """Release the subnets of the run."""
        self._reservations.release_all()

    def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
        """Run one trial in containers; see `TrialEngine.run_trial`."""
        if plan.needs_gpu:
            self.images["cuda"] = build_node_image("cuda", self._report_preparation)  # immediate once the image exists
        self._build_image_of_command(plan)
        mechanisms = self.choose_shaping_mechanisms(plan)
        if "transport" in (mechanisms.delay, mechanisms.loss):
            if isinstance(plan, CommandPlan) and plan.process_group == "gloo":
                raise HostError(
                    "this kernel can't delay or lose packets, and gloo does not use Ensayo's transport, which could; "
                    "use a strategy with process_group: ensayo, or remove delay, jitter and loss"
                )
            plan = plan.model_copy(update={"delay_mechanism": "transport"})
            (trial_folder / "plan.json").write_text(plan.model_dump_json(indent=1))  # before any node reads the plan
        with open_secrets_folder(plan.run, (node.name for node in plan.nodes)) as secrets_folder:
            with closing(docker.from_env()) as client:
                host = read_host_properties(client, self.images, secrets_folder)
            set_owner_of_nodes(secrets_folder, host.user)
            if plan.recovery.checkpoint:
                (trial_folder / CHECKPOINTS_FOLDER).mkdir(exist_ok=True)
                set_owner_of_nodes(trial_folder / CHECKPOINTS_FOLDER, host.user)
            nodes = NodeContainers(plan, trial_folder, host, mechanisms)
            return TrialSupervisor(plan, nodes, trial_folder, observer).run_trial()

    def _build_image_of_command(self, plan: Plan) -> None:
        """Build the node image on the image of the user that a command runs in, unless it exists."""
        if isinstance(plan, CommandPlan) and (facts := plan.workload.image_facts) and facts.id not in self.images:
            self.images[facts.id] = build_command_image(facts.id, self._report_preparation)

    def choose_shaping_mechanisms(self, plan: Plan) -> ChosenMechanisms:
        """Choose the shaping mechanism for each link property of a trial plan on this kernel.

        Examples of mechanisms are htb, netem and NFQUEUE.

        Raises:
            HostError: a declared property can't be enforced on this host, or not in a way that `strict` allows.
        """
        labels = container_labels(plan, HELPER_ROLE, "kernel")
        return choose_shaping_mechanisms(plan, self.find_kernel_features(labels) if needs_kernel_shaping(plan) else ())

    def find_kernel_features(self, probe_container_labels: Mapping[str, str]) -> set[KernelFeatureName]:
        """Return the traffic-control features that work on this kernel.

        The first call probes them in a container with the nodes' image and the privileges of a helper container.

        Args:
            probe_container_labels: labels of that container, by which `ensayo clean` finds it when it is left behind.

        Raises:
            HostError: the features can't be probed, for example because the nodes' image does not exist.
        """
        if self._features is None:
            # An interrupt would leave the container behind.
            with defer_stop_signals(), closing(docker.from_env()) as client:
                image = self.images["cpu"]
                self._features = probe_kernel_features(client, image, FEATURE_TEST_COMMANDS, probe_container_labels)
        return self._features


def read_host_properties(
    client: docker.DockerClient, image_by_device: dict[str, str], secrets_folder: Path
) -> DockerHostProperties:
    """Return the properties of this host that affect a Compose document.

    Args:
        client: connected to the Docker daemon.
        image_by_device: device -> image tag of the nodes.
        secrets_folder: contains the nodes' certificates and keys.
    """
    version = tuple(int(part) for part in client.version()["ApiVersion"].split("."))
    has_gpu = _has_gpu_runtime(client) and _has_image(client, image_by_device["cuda"])
    supports_start_interval = version >= START_INTERVAL_API_VERSION
    # Kernels of BLAS for different processors add in different orders. Nodes must use those of this process, so that
    # all engines compute the same bits.
    blas_settings = {name: os.environ[name] for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ}
    return DockerHostProperties(
        image_by_device, secrets_folder, container_user(), has_gpu, supports_start_interval, blas_settings
    )


def set_owner_of_nodes(folder: Path, uid_and_gid: str) -> None:
    """Make the nodes' Unix user the owner of a folder and its files, such as TLS keys.

    This is necessary because Compose keeps the owner of mounted files. Needed only when the runner is root; otherwise
    the files belong to the nodes' user already.
    """
    if os.getuid() == 0:
        uid, gid = (int(part) for part in uid_and_gid.split(":"))
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, gid)


def _has_gpu_runtime(docker_client: docker.DockerClient) -> bool:
    return "nvidia" in docker_client.info().get("Runtimes", {})


def _has_image(docker_client: docker.DockerClient, image_tag: str) -> bool:
    return bool(docker_client.images.list(image_tag))


def _network_subnets(network_attributes: dict[str, Any]) -> Iterator[str]:
    """Yield the subnets of a Docker network, such as `10.64.0.0/24`."""
    for config in (network_attributes.get("IPAM") or {}).get("Config") or ():
        yield config.get("Subnet", "")
