"""Description of the system that a run emulated, with the fields that MLCommons defines.

Emulated hardware is marked as emulated, and unrecorded fields as not recorded. All values are strings, because
MLCommons' checker requires strings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.exports.trial_verdict import TrialValidityVerdict
from analysis.reading.plan_view import PlannedNode, TrialPlan
from analysis.report.wording import format_quantity

RESEARCH_STATUS = "Research, Development, or Internal (RDI)"  # one of the four values that the checker allows
NOT_RECORDED, NOT_APPLICABLE = "not recorded", "N/A"


def describe_system(
    manifest: dict[str, Any], plan: TrialPlan, system_name: str, trial_verdicts: Sequence[TrialValidityVerdict] = ()
) -> dict[str, str]:
    """Return all fields of an MLPerf system description of the emulated cluster.

    Fields are in the order of MLCommons' checker.

    Host fields describe the real host; accelerator and networking fields describe the emulated hardware. The hardware
    notes list each result that is not valid, by its number: the index in `trial_verdicts`.

    No value except the status contains a comma, because the checker writes the values as CSV without quotes.
    """
    host = _host_fields(manifest.get("host") or {})
    fields = (
        _identity_fields(plan, system_name) | host | _describe_emulation(manifest, plan) | _software_fields(manifest)
    )
    fields["hw_notes"] += "".join(f"; result_{k}: {each}" for k, each in enumerate(trial_verdicts) if not each.is_valid)
    fields["sw_notes"] = f"strategy {plan.label} ({plan.strategy.get('kind', NOT_RECORDED)}); {plan.servers} servers"
    return {key: value if key == "status" else value.replace(",", ";") for key, value in fields.items()}


def _identity_fields(plan: TrialPlan, system_name: str) -> dict[str, str]:
    """Return the fields that identify a system: submitter, division, status, name and number of nodes."""
    origin = {"submitter": "ensayo", "division": "open", "status": RESEARCH_STATUS}
    return origin | {"system_name": system_name, "number_of_nodes": f"{plan.workers}"}


def _describe_emulation(run_manifest: Mapping[str, Any], plan: TrialPlan) -> dict[str, str]:
    """Return the fields that describe the emulated hardware: network, accelerators and notes."""
    engine = f"{plan.engine or (run_manifest.get('engine') or {}).get('name') or NOT_RECORDED} engine"
    workers = [node for node in plan.nodes if node.role == "worker"]
    return {
        "host_networking": f"emulated by the {engine}: {_describe_nodes(workers, _describe_link)}",
        "host_networking_topology": _describe_topology(plan),
        "host_memory_configuration": NOT_RECORDED,
        **_accelerator_fields(plan, workers),
        "cooling": NOT_RECORDED,
        "hw_notes": f"Ensayo emulates a cluster on one host at dilation {plan.dilation:g}; not an MLPerf result",
    }


def _software_fields(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that describe the software: Ensayo, libraries and operating system."""
    versions = manifest.get("versions") or {}
    return {
        "framework": f"Ensayo {versions.get('ensayo', NOT_RECORDED)}",
        "other_software_stack": "; ".join(f"{library} {version}" for library, version in versions.items()),
        "operating_system": f"{(manifest.get('host') or {}).get('system') or NOT_RECORDED}",
    }


def _host_fields(host: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that describe the host computer, which all emulated nodes share."""
    return {
        "host_processors_per_node": NOT_RECORDED,
        "host_processor_model_name": f"{host.get('processor') or NOT_RECORDED} (one host for all nodes)",
        "host_processor_core_count": f"{host.get('cores') or NOT_RECORDED} (one host for all nodes)",
        "host_processor_vcpu_count": f"{host.get('cores') or NOT_RECORDED}",
        "host_processor_frequency": NOT_RECORDED,
        "host_processor_caches": NOT_RECORDED,
        "host_processor_interconnect": NOT_RECORDED,
        "host_memory_capacity": _format_memory(host.get("memory_bytes")),
        "host_storage_type": NOT_RECORDED,
        "host_storage_capacity": NOT_RECORDED,
    }


def _accelerator_fields(plan: TrialPlan, worker_nodes: Iterable[PlannedNode]) -> dict[str, str]:
    """Return the fields that describe the accelerators.

    Every worker emulates one accelerator.
    """
    return {
        "accelerators_per_node": "1",
        "accelerator_model_name": f"emulated: {_describe_nodes(worker_nodes, _describe_compute_speed)}",
        "accelerator_host_interconnect": NOT_APPLICABLE,
        "accelerator_frequency": NOT_APPLICABLE,
        "accelerator_on-chip_memories": NOT_APPLICABLE,
        "accelerator_memory_configuration": NOT_APPLICABLE,
        "accelerator_memory_capacity": NOT_APPLICABLE,
        "accelerator_interconnect": "the emulated network",
        "accelerator_interconnect_topology": _describe_topology(plan),
    }


def _describe_nodes(nodes: Iterable[PlannedNode], describe_node: Any) -> str:
    """Join the descriptions of nodes into one text.

    Each distinct description occurs once, with the number of nodes if several nodes have it.
    """
    descriptions = [describe_node(node) for node in nodes]
    distinct = list(dict.fromkeys(descriptions))
    if len(distinct) <= 1:
        return distinct[0] if distinct else NOT_RECORDED
    return "; ".join(f"{descriptions.count(description)} × {description}" for description in distinct)


def _describe_link(node: PlannedNode) -> str:
    return f"{_format_rate(node.uplink_bps)} up and {_format_rate(node.downlink_bps)} down"


def _format_rate(rate_bps: float | None) -> str:
    return "unshaped" if rate_bps is None else format_quantity(rate_bps, "bit/s")


def _describe_compute_speed(node: PlannedNode) -> str:
    return f"{node.throughput:g} samples/s" if node.throughput else f"{node.cpus:g} cores of the host"


def _describe_topology(plan: TrialPlan) -> str:
    """Describe the network topology of the emulated cluster.

    Each node has one link to a network switch. If links are shared, the text states how many.
    """
    shared_links = len(plan.network.shared_links)
    node_links = "one link per node to a network switch"
    return f"{node_links}; {shared_links} shared links" if shared_links else node_links


def _format_memory(memory_bytes: int | None) -> str:
    return f"{memory_bytes / 2**30:.0f} GiB (one host for all nodes)" if memory_bytes else NOT_RECORDED
