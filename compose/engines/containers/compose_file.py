"""The compose document of a trial: a pure function of the plan. Every container is as small a target as it can be."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compose.runs.labels import RUN_LABEL, TRIAL_LABEL, labels
from compose.shaping import shared_link as switch
from services.plan import NodePlan, Plan
from services.runtime.identity import AUTHORITY, CERTIFICATE, KEY

PLAN_PATH = "/run/ensayo/plan.json"
# A tenth of the engine's default: a quota then stretches a step instead of cutting it in two. Half of that is better
# still for larger shares of a core, but small ones lose a part of what is theirs.
CPU_PERIOD_US, LARGE_SHARE, LARGE_SHARE_PERIOD_US = 10_000, 0.5, 5_000
SMALLEST_QUOTA_US = 1_000  # the kernel takes no less
PIDS = 128
HEALTH_INTERVAL_S = 60  # a probe costs a tenth of a second of CPU, which the training steps of a small host would feel
SYSCTLS = {
    # The host's default may be bbr, no match for small shaped links; reno is compiled in and allowed everywhere.
    "net.ipv4.tcp_congestion_control": "reno",
    # By default Linux answers ARP for any address on any interface: a peer's data address could be reached over
    # the control network, which nothing shapes.
    "net.ipv4.conf.all.arp_ignore": "1",
    # Nobody tells a node a shorter way to a peer than the one that is shaped.
    "net.ipv4.conf.all.accept_redirects": "0",
    "net.ipv4.conf.default.accept_redirects": "0",
}
FORWARDING = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    "net.ipv4.conf.all.arp_ignore": "1",
}
SWITCH_PIDS, SWITCH_MEMORY_BYTES = 8, 32 << 20


@dataclass(frozen=True)
class Host:
    """What the document takes from the host that it is for."""

    images: dict[str, str]  # device ("cpu", "cuda") -> image
    secrets: Path  # folder of the nodes' certificates and keys
    user: str  # uid:gid of the nodes, never root
    gpu: bool  # whether the engine can hand out a GPU
    fast_health: bool  # whether the engine knows `start_interval`


def project(plan: Plan) -> str:
    """The name under which Compose keeps the containers and networks of a trial; it takes few characters."""
    return re.sub("[^a-z0-9_-]", "-", f"ensayo-{plan.run}-{plan.trial}".lower())


def render(plan: Plan, host: Host) -> dict[str, Any]:
    """The document; it names no image tag or path that is not in `host`."""
    return {
        "name": project(plan),
        "services": {node.name: _service(plan, node, host) for node in plan.nodes} | _switch(plan, host),
        "networks": {
            "data": _network(plan, plan.nodes[0].place.data.host),
            "control": _network(plan, plan.nodes[0].place.control.host),
        },
        "configs": {"plan": {"file": "./plan.json"}},
        "secrets": {
            f"{node.name}-{file}": {"file": str(host.secrets / node.name / file)}
            for node in plan.nodes
            for file in (AUTHORITY, CERTIFICATE, KEY)
        },
    }


def _switch(plan: Plan, host: Host) -> dict[str, Any]:
    """What forwards between racks or regions where nodes share a limit: it sleeps, its kernel forwards."""
    if not switch.shared(plan):
        return {}
    service = {
        "image": host.images["cpu"],
        "entrypoint": ["sleep", "infinity"],
        "command": [],
        "hostname": switch.SWITCH,
        "user": host.user,
        "init": True,
        "read_only": True,
        "tmpfs": ["/tmp:size=1m,mode=1777"],  # noqa: S108 - the container's own, in memory
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": SWITCH_PIDS,
        "mem_limit": SWITCH_MEMORY_BYTES,
        "memswap_limit": SWITCH_MEMORY_BYTES,
        "cpu_period": CPU_PERIOD_US,
        "cpu_quota": SMALLEST_QUOTA_US,
        "sysctls": FORWARDING,
        "restart": "no",
        "stop_grace_period": "1s",
        "healthcheck": {"test": ["CMD", "true"], "interval": f"{HEALTH_INTERVAL_S}s"},
        "labels": labels(plan, switch.SWITCH, switch.SWITCH),
        "logging": {"driver": "json-file", "options": {"max-size": "1m"}},
        "networks": {"data": {"ipv4_address": switch.address(plan)}},
    }
    return {switch.SWITCH: service}


def uses_gpu(node: NodePlan, host: Host) -> bool:
    """Whether a node gets a GPU: it asks for one, or takes one where there is one."""
    return node.device == "cuda" or (node.device == "auto" and host.gpu)


def quota(cpus: float) -> dict[str, int]:
    """A share of a core, or some cores, in periods that suit it."""
    period_us = LARGE_SHARE_PERIOD_US if LARGE_SHARE <= cpus < 1 else CPU_PERIOD_US
    return {"cpu_period": period_us, "cpu_quota": max(SMALLEST_QUOTA_US, round(cpus * period_us))}


def _service(plan: Plan, node: NodePlan, host: Host) -> dict[str, Any]:
    gpu = uses_gpu(node, host)
    service: dict[str, Any] = {
        "image": host.images["cuda" if gpu else "cpu"],
        "command": ["node", node.name],
        "hostname": node.name,
        "user": host.user,
        "init": True,
        "read_only": True,
        "tmpfs": ["/tmp:size=64m,mode=1777"],  # noqa: S108 - the container's own, in memory
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": PIDS,
        "mem_limit": node.memory_bytes,
        "memswap_limit": node.memory_bytes,
        **quota(node.cpus),
        "sysctls": SYSCTLS,
        "restart": "no",
        "stop_grace_period": "1s",
        "healthcheck": _health(node, host),
        "labels": labels(plan, node.role, node.name),
        "logging": {"driver": "json-file", "options": {"max-size": "256m"}},
        "networks": _addresses(node),
        "configs": [{"source": "plan", "target": PLAN_PATH}],
        "secrets": [{"source": f"{node.name}-{file}", "target": file} for file in (AUTHORITY, CERTIFICATE, KEY)],
    }
    return service | ({"deploy": _GPU} if gpu else {})


_GPU = {"resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}}}


def _health(node: NodePlan, host: Host) -> dict[str, Any]:
    check = {
        "test": ["CMD", "/opt/ensayo/bin/python", "-m", "services.node", "health", node.name],
        "interval": f"{HEALTH_INTERVAL_S}s",
        "timeout": "5s",
        "retries": 3,
        "start_period": "10s",
    }
    return check | ({"start_interval": "1s"} if host.fast_health else {})


def _addresses(node: NodePlan) -> dict[str, Any]:
    """Both networks; the coordinator trains nothing and has no place on the shaped one."""
    control = {"control": {"ipv4_address": node.place.control.host}}
    return control if node.role == "coordinator" else control | {"data": {"ipv4_address": node.place.data.host}}


def _network(plan: Plan, first: str) -> dict[str, Any]:
    """A bridge without a way out, on the subnet of the plan's addresses."""
    subnet = first.rsplit(".", 1)[0] + ".0/24"
    return {
        "driver": "bridge",
        "internal": True,
        "ipam": {"config": [{"subnet": subnet}]},
        "labels": {RUN_LABEL: plan.run, TRIAL_LABEL: plan.trial},
    }
