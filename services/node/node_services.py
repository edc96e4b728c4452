"""Services that the engine provides to a node of a training."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from services.checkpoints.node_disk import NodeDisk
from services.cluster.links.link_conditions import ActiveLinkEvents
from services.cluster.links.message_corruption import MessageCorruptor
from services.ps_shard.runtime import BusyTime
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient
from services.runtime.core_share import CpuCoreShare
from services.runtime.membership import MembershipClient
from services.runtime.run_log import RunLog
from services.runtime.transport import Transport


@dataclass(frozen=True)
class NodeServices:
    """Services that the engine provides to a node: transport, clock, log and coordinator client, among others."""

    transport: Transport
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    read_interface_bytes: Callable[[], int | None]  # bytes that the shaped network interface has sent; None: unknown
    measure_core_share: Callable[[], CpuCoreShare | None]  # share of a host core; None: all nodes share one process
    membership: MembershipClient
    trial_folder: Path | None = None  # that has the checkpoints; None if none are written
    link_conditions: ActiveLinkEvents | None = None  # None where the transport does not shape links
    corruptor: MessageCorruptor = field(default_factory=MessageCorruptor)  # of the transport
    drop_connections: Callable[[Iterable[str]], None] | None = None  # to nodes; None where the transport can't
    disk: NodeDisk = field(default_factory=NodeDisk)  # to which the node writes its checkpoints
    update_time: BusyTime = field(default_factory=BusyTime)  # of the node's server, if it has one
