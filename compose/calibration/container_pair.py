"""Two measuring containers on a bridge network, for the engine `docker`."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from compose.calibration.node_pair import (
    MEASUREMENT_TIMEOUT_S,
    NODE_NAMES,
    READY_LINE,
    CalibrationNodePair,
    new_calibration_run_name,
    parse_probe_output,
)
from compose.engines.containers.compose_file import NODE_SYSCTLS, RUNNER_PIPE_PATH
from compose.engines.containers.engine import read_host_properties, set_owner_of_nodes
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL, TRIAL_LABEL
from compose.runs.secrets_folder import RUNNER_PIPE_FILE, open_secrets_folder
from compose.shaping import tc_output as reading
from compose.shaping.mechanisms import ChosenMechanisms
from compose.shaping.node_link import NodeLinkScripts
from services.cluster.addresses import Address, NodeAddresses
from services.node.message_probe import MessageTimesAndRates
from services.plan import Plan, make_plan
from services.runtime.control import OPEN_START_GATE_SIGNAL
from services.scenario.run_settings import TransportName
from services.scenario.scenario import Scenario
from services.schema.component import FrozenRecord
from services.schema.errors import HostError

MEASUREMENT_PORT = 7000


class ContainerPair(CalibrationNodePair):
    """Two measuring containers on a separate bridge network, for the engine `docker`.

    The kernel shapes the uplink and the downlink of both containers, in the same way as
    those of nodes.
    """

    def __init__(self, images: dict[str, str], transport: TransportName) -> None:
        """Store the container images and the transport to measure; start no container yet.

        There is one image per device.
        """
        self._images = images
        self._transport = transport

    def measure_message_timing(self, link_rate_bps: float | None) -> MessageTimesAndRates:
        """Start the two measuring containers and return what they have measured.

        See `CalibrationNodePair.measure_message_timing`.
        """
        run_name = new_calibration_run_name()
        with ExitStack() as stack:
            client = docker.from_env()
            stack.callback(client.close)
            folder = stack.enter_context(open_secrets_folder(run_name, NODE_NAMES))
            host = read_host_properties(client, self._images, folder)
            set_owner_of_nodes(folder, host.user)
            try:
                return self._measure_in_network(client, stack, run_name, folder, host.user, link_rate_bps)
            except (DockerException, OSError) as error:
                raise HostError(
                    f"calibration failed: the two measuring containers could not be started or read: {error}; "
                    "`ensayo doctor` checks Docker"
                ) from error

    def _measure_in_network(
        self,
        docker_client: Any,
        exit_stack: ExitStack,
        calibration_name: str,
        secrets_folder: Path,
        uid_and_gid: str,
        link_rate_bps: float | None,
    ) -> MessageTimesAndRates:
        """Start a network and two measuring containers, and return the measured message costs.

        `exit_stack` removes all three.
        """
        network = docker_client.networks.create(
            f"ensayo-{calibration_name}", internal=True, labels=_docker_labels(calibration_name, "network")
        )
        exit_stack.callback(network.remove)
        arguments = [*(f"{name}:{MEASUREMENT_PORT}" for name in NODE_NAMES), "--transport", self._transport]
        arguments += [] if link_rate_bps is None else ["--rate", str(link_rate_bps)]
        containers = []
        for name in NODE_NAMES:
            container = docker_client.containers.create(
                self._images["cpu"],
                ["measure", name, *arguments],
                hostname=name,
                network=network.name,
                networking_config={network.name: docker_client.api.create_endpoint_config(aliases=[name])},
                user=uid_and_gid,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                read_only=True,
                sysctls=NODE_SYSCTLS,
                volumes={
                    str(secrets_folder / name): {"bind": "/run/secrets", "mode": "ro"},
                    str(secrets_folder / RUNNER_PIPE_FILE): {"bind": RUNNER_PIPE_PATH, "mode": "ro"},
                },
                labels=_docker_labels(calibration_name, name),
            )
            exit_stack.callback(_remove_container, container)
            container.start()
            containers.append(container)
        return self._shape_links_and_measure(docker_client, calibration_name, containers, link_rate_bps)

    def _shape_links_and_measure(
        self, client: Any, calibration_name: str, node_containers: list[Container], link_rate_bps: float | None
    ) -> MessageTimesAndRates:
        """Shape the links of both measuring containers, start the measurement and return its result.

        The links are shaped after both containers are connected.
        """
        requester = node_containers[0]
        lines = requester.logs(stream=True, follow=True, stdout=True, stderr=False)
        if next(lines, b"").decode().strip() == READY_LINE:
            if link_rate_bps is not None:
                _shape_links(client, self._images["cpu"], calibration_name, node_containers, link_rate_bps)
            requester.kill(signal=OPEN_START_GATE_SIGNAL.name)
        requester.wait(timeout=MEASUREMENT_TIMEOUT_S)
        stdout = requester.logs(stdout=True, stderr=False).decode(errors="replace")
        stderr = requester.logs(stdout=False, stderr=True).decode(errors="replace")
        return parse_probe_output(stdout, stderr)


class ContainerPairAddresses(FrozenRecord):
    """IP addresses that Docker has assigned to the two measuring containers."""

    hosts: tuple[str, ...]

    def node_addresses(self, node_index: int) -> NodeAddresses:
        """Return the addresses of worker `node_index`, where the first worker has index 1.

        As in a run, index 0 belongs to the coordinator.
        """
        address = Address(host=self.hosts[max(0, node_index - 1)], port=MEASUREMENT_PORT)
        return NodeAddresses(data=address, control=address)


def _shape_links(
    docker_client: Any, image: str, calibration_name: str, node_containers: list[Container], link_rate_bps: float
) -> None:
    """Shape the uplink and the downlink of both measuring containers.

    Helper containers in the network namespaces of the measuring containers shape the links.

    Raises:
        HostError: the kernel has other rates than those it was given.
    """
    addresses = ContainerPairAddresses(hosts=tuple(_container_address(container) for container in node_containers))
    plan = _two_worker_plan(calibration_name, addresses, link_rate_bps)
    for node, container in zip(plan.node_plans_of_role("worker"), node_containers, strict=True):
        link = NodeLinkScripts(plan, node, ChosenMechanisms(rate="tc-htb"), None)
        setup_output = docker_client.containers.run(
            image,
            [link.make_link_setup_script()],
            entrypoint=["/bin/sh", "-c"],
            network_mode=f"container:{container.id}",
            user="0:0",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            remove=True,
            labels=_docker_labels(calibration_name, "shaper"),
        )
        if differences := reading.htb_rate_differences(link.expected_rates_bps(), setup_output.decode()):
            raise HostError(
                f"calibration failed: the kernel did not shape a link to {link_rate_bps / 1e9:g} Gbit/s: "
                f"{differences[0]}; `ensayo doctor` shows which shaping mechanisms work on this kernel"
            )


def _two_worker_plan(run_name: str, addresses: ContainerPairAddresses, link_rate_bps: float) -> Plan:
    """Return a trial plan with two workers, used only to shape links at `link_rate_bps`.

    No training starts.
    """
    rate = f"{link_rate_bps:.0f}bit"
    document = {
        "name": "calibrate",
        "workload": {
            "dataset": {"kind": "synthetic_regression"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch_per_worker": 1,
            "epochs": 1,
        },
        "cluster": {"workers": len(NODE_NAMES), "worker": {"uplink": rate, "downlink": rate}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, run_name, "docker", addresses)


def _container_address(container: Container) -> str:
    container.reload()
    (network,) = container.attrs["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


def _docker_labels(run_name: str, node_name: str) -> dict[str, str]:
    """Return the labels by which `ensayo clean` finds a container or network that was left behind."""
    return {RUN_LABEL: run_name, TRIAL_LABEL: "calibrate", ROLE_LABEL: "calibrate", NODE_LABEL: node_name}


def _remove_container(container: Container) -> None:
    with suppress(DockerException):
        container.remove(force=True)
