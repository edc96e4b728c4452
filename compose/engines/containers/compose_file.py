"""Docker Compose document of a trial, computed from the trial plan.

Containers get as few privileges as possible.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.runs.labels import RUN_LABEL, TRIAL_LABEL, container_labels
from compose.runs.secrets_folder import RUNNER_PIPE_FILE
from compose.shaping import shared_link
from services.checkpoints.folder import FOLDER_NAME as CHECKPOINTS_FOLDER
from services.plan import CommandPlan, NodePlan, Plan
from services.runtime.identity import CA_FILE, CERTIFICATE_FILE, KEY_FILE

PLAN_PATH, RUNNER_PIPE_PATH = "/run/ensayo/plan.json", "/run/ensayo/runner"  # in containers
# Scheduling period of CPU quotas, a tenth of Docker's default: a quota then slows a step down evenly instead of
# interrupting it. Half of that is better still for large shares of a core; small shares would get less than their
# quota.
CPU_PERIOD_US, LARGE_CPU_SHARE, LARGE_SHARE_CPU_PERIOD_US = 10_000, 0.5, 5_000
MIN_CPU_QUOTA_US = 1_000  # the kernel's minimum
NODE_PIDS_LIMIT = 128
COMMAND_PIDS_LIMIT = 1024  # of a worker that runs a user's command: TensorFlow starts more than 100 threads
HEALTH_INTERVAL_S = 60  # a health check takes 0.1 s of CPU time, which would delay training steps on a small host
NODE_SYSCTLS = {
    # The host's default may be bbr, which performs badly on slow shaped links; reno is built in and allowed everywhere.
    "net.ipv4.tcp_congestion_control": "reno",
    # By default Linux answers ARP for any address on any interface: a peer's data address could be reached over
    # the control network, whose links are not shaped.
    "net.ipv4.conf.all.arp_ignore": "1",
    # Ignore ICMP redirects: they could replace the shaped route to a peer by a shorter one.
    "net.ipv4.conf.all.accept_redirects": "0",
    "net.ipv4.conf.default.accept_redirects": "0",
}
NETWORK_SWITCH_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    "net.ipv4.conf.all.arp_ignore": "1",
}
NETWORK_SWITCH_PIDS_LIMIT, NETWORK_SWITCH_MEMORY_BYTES = 8, 32 << 20


@dataclass(frozen=True)
class DockerHostProperties:
    """Properties of the host that affect the Compose document of a trial."""

    images: dict[str, str]  # device ("cpu", "cuda"), or id of an image of the user -> tag of the node image
    secrets_folder: Path  # contains the nodes' certificates and keys, and the runner pipe
    user: str  # uid:gid of the nodes' processes, never root
    has_gpu: bool  # whether Docker can give containers a GPU
    supports_start_interval: bool  # whether Docker knows the health check option `start_interval`
    blas_settings: Mapping[str, str] = field(default_factory=dict)  # environment variables that choose kernels of BLAS


def compose_project_name(plan: Plan) -> str:
    """Return the name of a trial's Compose project, with every character that Compose forbids replaced by a hyphen."""
    return re.sub("[^a-z0-9_-]", "-", f"ensayo-{plan.run}-{plan.trial}".lower())


def render_compose_document(plan: Plan, host_properties: DockerHostProperties) -> dict[str, Any]:
    """Return the Compose document of a trial.

    Image tags and paths are those of the host (`host_properties`).
    """
    return {
        "name": compose_project_name(plan),
        "services": {node.name: _node_service(plan, node, host_properties) for node in plan.nodes}
        | _network_switch_service(plan, host_properties),
        "networks": {
            "data": _docker_network_definition(plan, plan.nodes[0].addresses.data.host),
            "control": _docker_network_definition(plan, plan.nodes[0].addresses.control.host),
        },
        "configs": {"plan": {"file": "./plan.json"}},
        "secrets": {
            f"{node.name}-{file}": {"file": str(host_properties.secrets_folder / node.name / file)}
            for node in plan.nodes
            for file in (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
        },
    }


def _network_switch_service(plan: Plan, host_properties: DockerHostProperties) -> dict[str, Any]:
    """Return the Compose service of the network switch, which forwards packets over links that nodes share.

    Its process waits for the end of the runner; the kernel forwards packets in the container's network namespace. Empty
    when no link is shared.
    """
    if not shared_link.shared_links(plan):
        return {}
    service = {
        "image": host_properties.images["cpu"],
        "entrypoint": ["python", "-m", "services.runtime.runner_pipe"],
        "command": [RUNNER_PIPE_PATH],
        "hostname": shared_link.NETWORK_SWITCH,
        "user": host_properties.user,
        "init": True,
        "read_only": True,
        "tmpfs": ["/tmp:size=1m,mode=1777"],  # noqa: S108 - private to the container, in memory
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": NETWORK_SWITCH_PIDS_LIMIT,
        "mem_limit": NETWORK_SWITCH_MEMORY_BYTES,
        "memswap_limit": NETWORK_SWITCH_MEMORY_BYTES,
        "cpu_period": CPU_PERIOD_US,
        "cpu_quota": MIN_CPU_QUOTA_US,
        "sysctls": NETWORK_SWITCH_SYSCTLS,
        "restart": "no",
        "stop_grace_period": "1s",
        "healthcheck": {"test": ["CMD", "true"], "interval": f"{HEALTH_INTERVAL_S}s"},
        "labels": container_labels(plan, shared_link.NETWORK_SWITCH, shared_link.NETWORK_SWITCH),
        "logging": {"driver": "json-file", "options": {"max-size": "1m"}},
        "networks": {"data": {"ipv4_address": shared_link.network_switch_address(plan)}},
        "volumes": [_runner_pipe_mount(host_properties)],
    }
    return {shared_link.NETWORK_SWITCH: service}


def uses_gpu(node: NodePlan, host_properties: DockerHostProperties) -> bool:
    """Return whether a node gets a GPU.

    A node gets a GPU if its device is `cuda`, or if its device is `auto` and the host has a GPU.
    """
    return node.device == "cuda" or (node.device == "auto" and host_properties.has_gpu)


def compose_file_cpu_quota(core_count: float) -> dict[str, int]:
    """Return the Compose keys that limit a container to a number of cores.

    The number of cores may be a fraction.
    """
    period_us = LARGE_SHARE_CPU_PERIOD_US if LARGE_CPU_SHARE <= core_count < 1 else CPU_PERIOD_US
    return {"cpu_period": period_us, "cpu_quota": max(MIN_CPU_QUOTA_US, round(core_count * period_us))}


def _node_service(plan: Plan, node: NodePlan, host_properties: DockerHostProperties) -> dict[str, Any]:
    """Return the Compose service of one node."""
    gets_gpu = uses_gpu(node, host_properties)
    service: dict[str, Any] = {
        "image": host_properties.images[_image_name(plan, node, host_properties)],
        "command": ["node", node.name],
        "hostname": node.name,
        "user": host_properties.user,
        "init": True,
        "read_only": True,
        "tmpfs": [f"/tmp:size={_scratch_size(plan, node)},mode=1777"],  # noqa: S108 - private to the container, in memory
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": _pids_limit(plan, node),
        "mem_limit": node.memory_bytes,
        "memswap_limit": node.memory_bytes,
        **compose_file_cpu_quota(node.cpus),
        **({"environment": dict(host_properties.blas_settings)} if host_properties.blas_settings else {}),
        "sysctls": NODE_SYSCTLS,
        "restart": "no",
        "stop_grace_period": "1s",
        "healthcheck": _container_health_check(node, host_properties),
        "labels": container_labels(plan, node.role, node.name),
        "logging": {"driver": "json-file", "options": {"max-size": "256m"}},
        "networks": _node_networks(node),
        "configs": [{"source": "plan", "target": PLAN_PATH}],
        "volumes": [
            _runner_pipe_mount(host_properties),
            *_host_folder_mounts(plan, node),
            *([CHECKPOINT_MOUNT] if plan.recovery.checkpoint else []),
        ],
        "secrets": [
            {"source": f"{node.name}-{file}", "target": file} for file in (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
        ],
    }
    return service | ({"deploy": _GPU_REQUEST} if gets_gpu else {})


def _image_name(plan: Plan, node: NodePlan, host_properties: DockerHostProperties) -> str:
    """Return the name under which the host's properties have the image of a node."""
    if isinstance(plan, CommandPlan) and node.role == "worker" and plan.workload.image_facts:
        return plan.workload.image_facts.id
    return "cuda" if uses_gpu(node, host_properties) else "cpu"


def _pids_limit(plan: Plan, node: NodePlan) -> int:
    """Return the largest number of processes and threads in a node's container."""
    return COMMAND_PIDS_LIMIT if isinstance(plan, CommandPlan) and node.role == "worker" else NODE_PIDS_LIMIT


def _scratch_size(plan: Plan, node: NodePlan) -> str:
    """Return the size of a node's folder for temporary files, which counts as its memory.

    A command of the user writes its files there, for example checkpoints: at most half of the node's memory.
    """
    return str(node.memory_bytes // 2) if isinstance(plan, CommandPlan) and node.role == "worker" else "64m"


def _runner_pipe_mount(host_properties: DockerHostProperties) -> dict[str, Any]:
    """Return the bind mount of the runner pipe, at whose end of file the process of a container exits."""
    return _read_only_mount(host_properties.secrets_folder / RUNNER_PIPE_FILE, RUNNER_PIPE_PATH)


def _host_folder_mounts(plan: Plan, node: NodePlan) -> list[dict[str, Any]]:
    """Return the bind mounts of data, code and packages that a node reads, at their paths on the host."""
    return [_read_only_mount(folder, str(folder)) for folder in plan.host_folders(node.role)]


def _read_only_mount(source: Path, target: str) -> dict[str, Any]:
    return {
        "type": "bind",
        "source": str(source),
        "target": target,
        "read_only": True,
        "bind": {"create_host_path": False},
    }


# All nodes write their checkpoints to one folder of the trial, next to the Compose file.
CHECKPOINT_MOUNT = {
    "type": "bind",
    "source": f"./{CHECKPOINTS_FOLDER}",
    "target": f"/run/ensayo/{CHECKPOINTS_FOLDER}",
    "bind": {"create_host_path": False},
}

_GPU_REQUEST = {"resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}}}


def _container_health_check(node: NodePlan, host_properties: DockerHostProperties) -> dict[str, Any]:
    """Return the health check of a node's container, which calls the node's health service."""
    check = {
        "test": ["CMD", "/opt/ensayo/bin/python", "-m", "services.node", "health", node.name],
        "interval": f"{HEALTH_INTERVAL_S}s",
        "timeout": "5s",
        "retries": 3,
        "start_period": "10s",
    }
    return check | ({"start_interval": "1s"} if host_properties.supports_start_interval else {})


def _node_networks(node: NodePlan) -> dict[str, Any]:
    """Return the container networks of a node.

    A node is on the control network and the data network. The coordinator is only on the control network, since it
    sends no gradients.
    """
    control = {"control": {"ipv4_address": node.addresses.control.host}}
    return control if node.role == "coordinator" else control | {"data": {"ipv4_address": node.addresses.data.host}}


def _docker_network_definition(plan: Plan, node_address: str) -> dict[str, Any]:
    """Return the Compose definition of an internal bridge network on the /24 subnet of a node.

    The network has no access to the outside.
    """
    subnet = node_address.rsplit(".", 1)[0] + ".0/24"
    return {
        "driver": "bridge",
        "internal": True,
        "ipam": {"config": [{"subnet": subnet}]},
        "labels": {RUN_LABEL: plan.run, TRIAL_LABEL: plan.trial},
    }
