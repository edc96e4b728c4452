"""What system was it? The fields of MLCommons' system description, from what a run recorded.

What is emulated is called emulated; what was not recorded says so. Every value is a string, as the checker wants.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.exports.believed import Believed
from analysis.reading.plan_view import PlannedNode, PlanView
from analysis.report.wording import format_quantity

STATUS = "Research, Development, or Internal (RDI)"  # one of the four phrases that the checker allows
UNRECORDED, NONE = "not recorded", "N/A"


def describe(manifest: dict[str, Any], plan: PlanView, name: str, results: Sequence[Believed] = ()) -> dict[str, str]:
    """All fields, in the checker's order. The host is real, what it emulates stands under accelerator and networking.

    The notes name those of the `results`, in the order of their numbers, that may not be believed.

    No value but the status has a comma: the checker makes lines of CSV of them without quoting.
    """
    host = _host(manifest.get("host") or {})
    fields = {**_who(plan, name), **host, **_emulated(manifest, plan), **_software(manifest)}
    fields["hw_notes"] += "".join(f"; result_{k}: {each}" for k, each in enumerate(results) if not each.is_valid)
    fields["sw_notes"] = f"strategy {plan.label} ({plan.strategy.get('kind', UNRECORDED)}); {plan.servers} servers"
    return {key: value if key == "status" else value.replace(",", ";") for key, value in fields.items()}


def _who(plan: PlanView, name: str) -> dict[str, str]:
    """Whose system, and of how many nodes."""
    return {
        "submitter": "ensayo",
        "division": "open",
        "status": STATUS,
        "system_name": name,
        "number_of_nodes": f"{plan.workers}",
    }


def _emulated(manifest: Mapping[str, Any], plan: PlanView) -> dict[str, str]:
    """What there is of the system only while a run lasts."""
    engine = f"{plan.engine or (manifest.get('engine') or {}).get('name') or UNRECORDED} engine"
    workers = [node for node in plan.nodes if node.role == "worker"]
    return {
        "host_networking": f"emulated by the {engine}: {_each(workers, _link)}",
        "host_networking_topology": _topology(plan),
        "host_memory_configuration": UNRECORDED,
        **_accelerator(plan, workers),
        "cooling": UNRECORDED,
        "hw_notes": f"Ensayo rehearses a cluster on one host at dilation {plan.dilation:g}; not an MLPerf result",
    }


def _software(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What it ran on."""
    versions = manifest.get("versions") or {}
    return {
        "framework": f"Ensayo {versions.get('ensayo', UNRECORDED)}",
        "other_software_stack": "; ".join(f"{library} {version}" for library, version in versions.items()),
        "operating_system": f"{(manifest.get('host') or {}).get('system') or UNRECORDED}",
    }


def _host(host: Mapping[str, Any]) -> dict[str, str]:
    """The machine that all nodes share."""
    return {
        "host_processors_per_node": UNRECORDED,
        "host_processor_model_name": f"{host.get('processor') or UNRECORDED} (one host for all nodes)",
        "host_processor_core_count": f"{host.get('cores') or UNRECORDED} (one host for all nodes)",
        "host_processor_vcpu_count": f"{host.get('cores') or UNRECORDED}",
        "host_processor_frequency": UNRECORDED,
        "host_processor_caches": UNRECORDED,
        "host_processor_interconnect": UNRECORDED,
        "host_memory_capacity": _memory(host.get("memory_bytes")),
        "host_storage_type": UNRECORDED,
        "host_storage_capacity": UNRECORDED,
    }


def _accelerator(plan: PlanView, workers: Iterable[PlannedNode]) -> dict[str, str]:
    """What each worker stands for."""
    return {
        "accelerators_per_node": "1",
        "accelerator_model_name": f"emulated: {_each(workers, _speed)}",
        "accelerator_host_interconnect": NONE,
        "accelerator_frequency": NONE,
        "accelerator_on-chip_memories": NONE,
        "accelerator_memory_configuration": NONE,
        "accelerator_memory_capacity": NONE,
        "accelerator_interconnect": "the emulated network",
        "accelerator_interconnect_topology": _topology(plan),
    }


def _each(nodes: Iterable[PlannedNode], told: Any) -> str:
    """What is true of all nodes, or each kind with how many there are of it."""
    texts = [told(node) for node in nodes]
    kinds = list(dict.fromkeys(texts))
    if len(kinds) <= 1:
        return kinds[0] if kinds else UNRECORDED
    return "; ".join(f"{texts.count(kind)} × {kind}" for kind in kinds)


def _link(node: PlannedNode) -> str:
    return f"{_rate(node.uplink_bps)} up and {_rate(node.downlink_bps)} down"


def _rate(bps: float | None) -> str:
    return "unshaped" if bps is None else format_quantity(bps, "bit/s")


def _speed(node: PlannedNode) -> str:
    return f"{node.throughput:g} samples/s" if node.throughput else f"{node.cpus:g} cores of the host"


def _topology(plan: PlanView) -> str:
    """What nodes share beyond their own links."""
    shared = len(plan.network.shared_links)
    return f"a link per node to one switch; {shared} shared links" if shared else "a link per node to one switch"


def _memory(count: int | None) -> str:
    return f"{count / 2**30:.0f} GiB (one host for all nodes)" if count else UNRECORDED
