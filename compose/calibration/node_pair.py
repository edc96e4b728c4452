"""Two nodes that measure what this host adds to a message: as processes, or as containers behind shaped links."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from compose.engines.base import Engine
from compose.engines.containers.compose_file import SYSCTLS
from compose.engines.containers.engine import DockerEngine, hand_over, host_for
from compose.engines.local import ENVIRONMENT
from compose.runs.certificates import issue
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL, RUN_VARIABLE, SECRETS_PREFIX, TRIAL_LABEL
from compose.shaping import tc_output as reading
from compose.shaping.mechanisms import Rungs
from compose.shaping.node_link import NodeLink
from services.cluster.addresses import Address, Place
from services.node.message_probe import ANSWERS, ASKS, Measured
from services.plan import Plan, make_plan
from services.runtime.control import OPEN_GATE
from services.scenario.scenario import Scenario, TransportName
from services.schema.component import Record
from services.schema.errors import HostError

PAIR = (ASKS, ANSWERS)
PORT = 7000
PATIENCE_S = 60.0
READY = "ready"  # what the one that asks prints when both are connected


class Pair(ABC):
    """Two nodes on one kind of engine."""

    @abstractmethod
    def measure(self, rate_bps: float | None) -> Measured:
        """What they find over a link of this rate in bit/s, or over one that is not shaped.

        Raises:
            HostError: they can't be started here, or one of them failed.
        """


class Processes(Pair):
    """Two processes on loopback; the transport shapes the link."""

    def __init__(self, transport: TransportName) -> None:
        self._transport = transport

    def measure(self, rate_bps: float | None) -> Measured:
        run = _name()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{SECRETS_PREFIX}{run}-")))
            issue(run, PAIR, folder)
            addresses = _free_addresses()
            marks = os.environ | ENVIRONMENT | {RUN_VARIABLE: run}
            shaped = [] if rate_bps is None else ["--rate", str(rate_bps), "--by-transport"]
            carried = ["--transport", self._transport]
            asks, _ = (
                stack.enter_context(
                    _process([name, *addresses, "--secrets", str(folder / name), *carried, *shaped], marks)
                )
                for name in PAIR
            )
            assert asks.stdout is not None  # noqa: S101 - it is piped
            if asks.stdout.readline().strip() == READY:
                asks.send_signal(OPEN_GATE)
            said, complaint = asks.communicate(timeout=PATIENCE_S)
        return _read(said, complaint)


class Boxes(Pair):
    """Two containers on a bridge of their own; the kernel shapes their links up and down, as those of nodes."""

    def __init__(self, images: dict[str, str], transport: TransportName) -> None:
        """`images` are the engine's, by device."""
        self._images = images
        self._transport = transport

    def measure(self, rate_bps: float | None) -> Measured:
        run = _name()
        with ExitStack() as stack:
            client = docker.from_env()
            stack.callback(client.close)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{SECRETS_PREFIX}{run}-")))
            host = host_for(client, self._images, folder)
            issue(run, PAIR, folder)
            hand_over(folder, host.user)
            try:
                return self._measure(client, stack, run, folder, host.user, rate_bps)
            except (DockerException, OSError) as error:
                raise HostError(f"two containers could not measure: {error}") from error

    def _measure(
        self, client: Any, stack: ExitStack, run: str, folder: Path, user: str, rate_bps: float | None
    ) -> Measured:
        network = client.networks.create(f"ensayo-{run}", internal=True, labels=_labels(run, "network"))
        stack.callback(network.remove)
        shaped = [] if rate_bps is None else ["--rate", str(rate_bps)]
        command = ["measure", "", f"{ASKS}:{PORT}", f"{ANSWERS}:{PORT}", "--transport", self._transport, *shaped]
        boxes = []
        for name in PAIR:
            box = client.containers.create(
                self._images["cpu"],
                [command[0], name, *command[2:]],
                hostname=name,
                network=network.name,
                networking_config={network.name: client.api.create_endpoint_config(aliases=[name])},
                user=user,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                read_only=True,
                sysctls=SYSCTLS,
                volumes={str(folder / name): {"bind": "/run/secrets", "mode": "ro"}},
                labels=_labels(run, name),
            )
            stack.callback(_remove, box)
            box.start()
            boxes.append(box)
        return self._lead(client, run, boxes, rate_bps)

    def _lead(self, client: Any, run: str, boxes: list[Container], rate_bps: float | None) -> Measured:
        """Wait until they are connected, shape their links, let them go, read what they found."""
        asks = boxes[0]
        lines = asks.logs(stream=True, follow=True, stdout=True, stderr=False)
        if next(lines, b"").decode().strip() == READY:
            if rate_bps is not None:
                _shape(client, self._images["cpu"], run, boxes, rate_bps)
            asks.kill(signal=OPEN_GATE.name)
        asks.wait(timeout=PATIENCE_S)
        said, complaint = (asks.logs(stdout=out, stderr=not out).decode(errors="replace") for out in (True, False))
        return _read(said, complaint)


def pair(engine: Engine, transport: TransportName) -> Pair:
    """The pair that measures one transport for an engine that is prepared."""
    return Boxes(engine.images, transport) if isinstance(engine, DockerEngine) else Processes(transport)


class Found(Record):
    """The addresses that the engine has given to the two."""

    hosts: tuple[str, ...]

    def place(self, number: int) -> Place:
        """Of a node of the plan; its coordinator is nobody here."""
        address = Address(host=self.hosts[max(0, number - 1)], port=PORT)
        return Place(data=address, control=address)


def _shape(client: Any, image: str, run: str, boxes: list[Container], rate_bps: float) -> None:
    """Both links in both directions, from outside the nodes: what arrives has passed an uplink and a downlink.

    Raises:
        HostError: the kernel has something else.
    """
    plan = _plan(run, Found(hosts=tuple(_address(box) for box in boxes)), rate_bps)
    for node, box in zip(plan.of_role("worker"), boxes, strict=True):
        link = NodeLink(plan, node, Rungs(rate="tc-htb"), None)
        printed = client.containers.run(
            image,
            [link.setup()],
            entrypoint=["/bin/sh", "-c"],
            network_mode=f"container:{box.id}",
            user="0:0",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            remove=True,
            labels=_labels(run, "shaper"),
        )
        if wrong := reading.differences(link.wanted(), printed.decode()):
            raise HostError(f"a link to measure could not be shaped: {wrong[0]}")


def _plan(run: str, addresses: Found, rate_bps: float) -> Plan:
    """Two workers whose links have this rate; what they would train is never begun."""
    rate = f"{rate_bps:.0f}bit"
    document = {
        "name": "calibrate",
        "workload": {
            "dataset": {"kind": "synthetic_regression"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch_per_worker": 1,
            "epochs": 1,
        },
        "cluster": {"workers": len(PAIR), "worker": {"uplink": rate, "downlink": rate}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, run, "docker", addresses)


def _address(box: Container) -> str:
    box.reload()
    (network,) = box.attrs["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


def _name() -> str:
    return f"calibrate-{secrets.token_hex(2)}"


def _labels(run: str, node: str) -> dict[str, str]:
    """What lets leftovers be found."""
    return {RUN_LABEL: run, TRIAL_LABEL: "calibrate", ROLE_LABEL: "calibrate", NODE_LABEL: node}


def _remove(box: Container) -> None:
    with suppress(DockerException):
        box.remove(force=True)


def _free_addresses() -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in PAIR]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


@contextmanager
def _process(arguments: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A process of our own that is gone afterwards."""
    command = [sys.executable, "-m", "services.node", "measure", *arguments]
    with subprocess.Popen(  # noqa: S603 - our own module, our own arguments
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _read(said: str, complaint: str) -> Measured:
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        raise HostError(f"two nodes could not measure: {(complaint.strip().splitlines() or ['no message'])[-1]}")
    return Measured.model_validate_json(lines[-1])
