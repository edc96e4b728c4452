"""Log events of a node: the facts about its process at the start, and its totals at the end."""

import platform
import resource

import numpy as np

from services.node.node_services import NodeServices
from services.runtime.core_share import CpuCoreShare
from services.runtime.device import ComputeDevice
from services.runtime.host_facts import describe_memory_allocator
from services.runtime.run_log import RunLog
from services.runtime.scheduling import read_time_slice_ns


def device_log_fields(device: ComputeDevice) -> dict[str, object]:
    """Return the log fields for the device on which a node computes."""
    return {
        "device": device.name,
        "device_model": device.description,
        "device_reason": device.reason,
        "device_memory_limit_bytes": device.memory_limit_bytes,
    }


def cpu_core_share_log_fields(core_share: CpuCoreShare | None) -> dict[str, float | None]:
    """Return the log fields for the share of a CPU core that a node gets.

    All are None if it was not measured.
    """
    return core_share._asdict() if core_share else dict.fromkeys(CpuCoreShare._fields)


def log_node_start(log: RunLog, **facts: object) -> None:
    """Log the start of a node, with facts about its process and other facts."""
    process_facts = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "slice_ns": read_time_slice_ns(),
        "allocator": describe_memory_allocator(),
    }
    log.log_event("node_start", process_facts | facts)


def log_node_totals(node_services: NodeServices, sent_bytes_before: int | None, **facts: object) -> None:
    """Log the bytes that a node has sent and the CPU time that it has used.

    Interface bytes include headers, acknowledgements and retransmissions.
    """
    traffic, bytes_after = node_services.transport.traffic, node_services.read_interface_bytes()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    bytes_sent = None if bytes_after is None or sent_bytes_before is None else bytes_after - sent_bytes_before
    value = {
        "payload_bytes_sent": traffic.payload_bytes,
        "framing_bytes_sent": traffic.framing_bytes,
        "messages_sent": traffic.messages,
        "interface_bytes_sent": bytes_sent,
        "peers": traffic.payload_bytes_by_peer,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        **facts,
    }
    node_services.log.log_event("node_stop", value)
