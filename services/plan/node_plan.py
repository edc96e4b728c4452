"""The plan of one node."""

from typing import Literal, TypeAlias

from services.cluster.addresses import Place
from services.cluster.device_profiles import AnyVariation
from services.runtime.device import DeviceSelection
from services.schema.component import Record

Role: TypeAlias = Literal["coordinator", "worker", "ps_shard"]

COORDINATOR = "coordinator"


class NodePlan(Record):
    """One node."""

    name: str
    role: Role
    rank: int  # within its role
    place: Place
    device: DeviceSelection = "cpu"
    throughput: float | None = None  # samples/s that a paced worker declares; None: as fast as the host
    slot: float = 0.0  # share of the step after which a paced worker does its mathematics, in [0, 1)
    uplink_bps: float | None = None  # virtual; the engine divides by the dilation
    downlink_bps: float | None = None
    buffer_bytes: int | None = None  # of the port towards the node
    variation: AnyVariation | None = None  # of a paced worker's speed
    memory_bytes: int
    cpus: float
