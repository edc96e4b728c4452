"""Plan of one node of a trial: role, addresses, link rates, compute speed and container limits."""

from typing import Literal, TypeAlias

from services.cluster.addresses import NodeAddresses
from services.cluster.device_profiles import AnyVariation
from services.cluster.running_costs import HourlyPrice, PowerDraw
from services.runtime.device import DeviceSelection, GpuMemoryShare
from services.schema.component import FrozenRecord

NodeRole: TypeAlias = Literal["coordinator", "worker", "ps_shard"]


class NodePlan(FrozenRecord):
    """Plan of one node of a trial: all decisions that are made before the trial starts."""

    name: str
    role: NodeRole
    rank: int  # number among the nodes of the same role, from 0
    addresses: NodeAddresses
    device: DeviceSelection = "cpu"
    gpu_memory: GpuMemoryShare = GpuMemoryShare()  # of a worker that computes on a GPU
    throughput: float | None = None  # samples/s, if set by the scenario; None: as fast as the host
    throughput_derivation: str = ""  # how the throughput follows from declared keys
    # In [0, 1): part of the spare time of an emulated compute phase that passes before the real compute. It differs
    # between workers, so that they do not compute at the same time on the host's cores.
    compute_slot: float = 0.0
    uplink_bps: float | None = None  # virtual; the engine divides it by the dilation
    downlink_bps: float | None = None
    buffer_bytes: int | None = None  # of the network's queue towards the node
    variation: AnyVariation | None = None  # of the emulated compute time
    memory_bytes: int  # limit of the container
    cpus: float  # number of host cores that the container may use
    watts: PowerDraw | None = None  # declared power draw
    price: HourlyPrice | None = None  # declared price
