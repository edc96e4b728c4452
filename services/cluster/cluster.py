"""The emulated cluster as a scenario declares it: workers, servers and the links between them."""

from collections.abc import Iterator
from math import inf
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from services.cluster.compute_speed import (
    ComputeSpeed,
    SampleOperations,
    scale_declared_throughput,
    speed_from_utilisation,
)
from services.cluster.device_profiles import AnyVariation, DeviceName
from services.cluster.network import AccessLink, AccessLinkSettings, AnyTopology, NodePairLink, StarTopology
from services.cluster.running_costs import (
    PRICE_DESCRIPTION,
    WATTS_DESCRIPTION,
    DeclaredPrice,
    HourlyPrice,
    PowerDraw,
    find_currency_conflicts,
)
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, prepend_parent_key, raise_conflicts
from services.schema.limits import MAX_WORKERS
from services.schema.units import Bytes, Throughput

DeviceChoice: TypeAlias = Literal["auto", "cpu", "cuda"]
Utilisation: TypeAlias = Annotated[float, Field(gt=0, le=1)]
SPEED_EXAMPLES = f"add for example throughput: {Throughput.example}, or profile: h100 and utilisation: 0.4"


class ServerSpec(AccessLink):
    """Properties of one parameter server: its access link and the limits of its container."""

    memory: Bytes = Field(Bytes("512MiB"), description="memory limit of the server's container")
    cpus: PositiveFloat = Field(1.0, description="number of host cores that the server's container may use")
    watts: PowerDraw | None = Field(None, description=WATTS_DESCRIPTION)
    price: HourlyPrice | None = Field(None, description=PRICE_DESCRIPTION)


class WorkerSpec(AccessLink):
    """Properties of one worker: its access link, its compute device and the limits of its container."""

    device: DeviceChoice = Field("auto", description="device that computes; auto takes a GPU if the host has one")
    throughput: Throughput | None = Field(
        None,
        description="compute speed that is emulated; with a profile, the speed of an A100. A worker without a "
        "throughput is as fast as this host",
    )
    profile: DeviceName | None = Field(
        None,
        description="name of a known device; throughput is multiplied by its speed relative to an A100, utilisation by "
        "its peak FLOP/s",
    )
    utilisation: Utilisation | None = Field(
        None,
        description="instead of throughput: share of the peak FLOP/s of the profile that training sustains. The "
        "compute speed is this share of the peak, divided by the operations per sample (workload.flops_per_sample)",
    )
    speed: PositiveFloat = Field(1.0, description="factor by which the compute speed is multiplied")
    variation: AnyVariation | None = Field(None, description="variation of the compute time from step to step")
    memory: Bytes = Field(Bytes("512MiB"), description="memory limit of the worker's container")
    gpu_memory: Bytes | None = Field(
        None,
        description="limit of the GPU memory that a worker uses for arrays; by default, workers get equal shares",
    )
    cpus: PositiveFloat = Field(1.0, description="number of host cores that the worker's container may use")
    watts: PowerDraw | None = Field(None, description=WATTS_DESCRIPTION)
    price: HourlyPrice | None = Field(None, description=PRICE_DESCRIPTION)

    @property
    def is_paced(self) -> bool:
        """Whether a compute speed is declared; otherwise the worker computes as fast as this host."""
        return self.throughput is not None or self.utilisation is not None

    def compute_speed(self, sample_operations: SampleOperations | None = None) -> ComputeSpeed | None:
        """Return the declared compute speed; None if the worker computes as fast as this host.

        The speed of a worker with a utilisation depends on `sample_operations`. It is None too if they are unknown.
        """
        if self.throughput is not None:
            return scale_declared_throughput(self.throughput, self.profile, self.speed)
        if self.utilisation is None or self.profile is None or sample_operations is None:
            return None
        return speed_from_utilisation(self.utilisation, self.profile, self.speed, sample_operations)

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        yield from super().find_field_conflicts()
        if self.gpu_memory and self.device == "cpu":
            yield KeyConflict(("gpu_memory",), "gpu_memory needs device: cuda or auto; with device: cpu, remove it")
        if self.throughput is not None and self.utilisation is not None:
            message = "throughput and utilisation both declare the compute speed; remove one of them"
            yield KeyConflict(("utilisation",), message)
        if self.utilisation is not None and self.profile is None:
            message = "utilisation is a share of the peak of a known device; add for example profile: h100"
            yield KeyConflict(("utilisation",), message)
        if not self.is_paced:
            declared = {"profile": self.profile, "speed": self.speed != 1.0, "variation": self.variation}
            for key in (key for key, value in declared.items() if value):
                yield KeyConflict((key,), f"{key} needs throughput or utilisation; {SPEED_EXAMPLES}")


class WorkerGroup(AccessLinkSettings):
    """Group of workers whose settings differ from those of other workers.

    For a key that is left out, the value in `cluster.worker` applies.
    """

    name: str = Field(min_length=1, description="unique name of the group")
    ranks: tuple[NonNegativeInt, ...] = Field(min_length=1, description="ranks of the group's workers, counted from 0")
    device: DeviceChoice | None = None
    throughput: Throughput | None = None
    profile: DeviceName | None = None
    utilisation: Utilisation | None = None
    speed: PositiveFloat | None = None
    variation: AnyVariation | None = None
    memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    cpus: PositiveFloat | None = None
    watts: PowerDraw | None = None
    price: HourlyPrice | None = None

    def override_spec(self, base_worker_spec: WorkerSpec) -> WorkerSpec:
        """Return a copy of `base_worker_spec` with the values that this group of workers declares.

        A group that names a link inherits none of the link keys of `base_worker_spec`, and one with `device: cpu` no
        limit of GPU memory. A group that declares one of throughput and utilisation does not inherit the other.
        """
        declared = {key: value for key, value in self if key in WorkerSpec.model_fields and value is not None}
        cleared = dict.fromkeys(AccessLinkSettings.model_fields) if self.link else {}
        if self.device == "cpu":
            cleared["gpu_memory"] = None
        if self.throughput is not None or self.utilisation is not None:
            cleared |= {"throughput": None, "utilisation": None}
        return base_worker_spec.model_copy(update=cleared | declared)

    def find_field_conflicts(
        self, inherited_worker_spec: WorkerSpec, group_index: int, earlier_groups: tuple[Self, ...]
    ) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for each contradiction between scenario keys of this worker group.

        Key paths start below the key `cluster`.

        Args:
            inherited_worker_spec: properties of every worker, which the group inherits.
            group_index: index of this group in the list of groups.
            earlier_groups: all groups before this one in the list.
        """
        for key_path, message in self.override_spec(inherited_worker_spec).find_field_conflicts():
            yield KeyConflict(("groups", group_index, *key_path), message)
        if any(self.name == group.name for group in earlier_groups):
            yield KeyConflict(
                ("groups", group_index, "name"), f"another group is named {self.name}; group names are unique"
            )
        for rank in sorted({rank for group in earlier_groups for rank in group.ranks} & set(self.ranks)):
            yield KeyConflict(
                ("groups", group_index, "ranks"), f"rank {rank} is in another group too; a rank is in one group at most"
            )


class Cluster(FrozenRecord):
    """The emulated cluster: its nodes and the network between them."""

    workers: int = Field(1, ge=1, le=MAX_WORKERS, description="number of workers")
    worker: WorkerSpec = Field(WorkerSpec(), description="properties of every worker")
    server: ServerSpec = Field(ServerSpec(), description="properties of every server, under strategies with servers")
    groups: tuple[WorkerGroup, ...] = Field((), description="groups of workers with properties of their own")
    network: AnyTopology = Field(StarTopology(), description="network between the access links of the nodes")
    links: tuple[NodePairLink, ...] = Field((), description="limits and delays between pairs of nodes")

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_conflicts(self._find_field_conflicts())
        return self

    def _find_field_conflicts(self) -> Iterator[KeyConflict]:
        for k, group in enumerate(self.groups):
            yield from group.find_field_conflicts(self.worker, k, self.groups[:k])
        yield from find_currency_conflicts(self._declared_prices())
        yield from prepend_parent_key("network", self.network.find_field_conflicts())
        for k, link in enumerate(self.links):
            yield from prepend_parent_key("links", prepend_parent_key(k, link.key_conflicts_with(self.links[:k])))

    def _declared_prices(self) -> Iterator[DeclaredPrice]:
        yield DeclaredPrice(("worker", "price"), self.worker.price)
        yield DeclaredPrice(("server", "price"), self.server.price)
        yield from (DeclaredPrice(("groups", k, "price"), group.price) for k, group in enumerate(self.groups))

    def worker_spec(self, rank: int) -> WorkerSpec:
        """Return the properties of the worker with this rank, including those that its worker group declares."""
        return next((group.override_spec(self.worker) for group in self.groups if rank in group.ranks), self.worker)

    def access_link(self, node_name: str) -> AccessLink:
        """Return the access link of a worker or server.

        Its link profile supplies the values that are not declared.
        """
        role, _, rank = node_name.rpartition("-")
        return (self.worker_spec(int(rank)) if role == "worker" else self.server).with_link_profile_values

    @property
    def has_link_rate_limits(self) -> bool:
        """Whether the scenario declares a rate for any link.

        The link may be that of a worker, of a pair of nodes, or of the topology.
        """
        return any(self._worker_link_rates_bps())

    @property
    def slowest_link_bps(self) -> float:
        """Lowest rate in bit/s that the scenario declares for any link, inf without declared rates."""
        servers_bps = _find_link_rates(self.server.with_link_profile_values.model_dump())
        return min((*self._worker_link_rates_bps(), *servers_bps), default=inf)

    def _worker_link_rates_bps(self) -> Iterator[float]:
        access_links = [spec.with_link_profile_values for spec in self._distinct_worker_specs()]
        return _find_link_rates([part.model_dump() for part in (*access_links, *self.links, self.network)])

    def _distinct_worker_specs(self) -> Iterator[WorkerSpec]:
        """Yield the properties of the workers of each group, and of those in no group."""
        ranks, grouped_ranks = set(range(self.workers)), {rank for group in self.groups for rank in group.ranks}
        if ranks - grouped_ranks:
            yield self.worker
        yield from (group.override_spec(self.worker) for group in self.groups if ranks & set(group.ranks))

    def find_unknown_node_refs(self, max_worker_count: int, max_server_count: int) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for every reference to a worker or server that the cluster lacks.

        Args:
            max_worker_count: largest number of workers in any trial.
            max_server_count: largest number of servers in any trial.
        """
        for k, group in enumerate(self.groups):
            if bad := [rank for rank in group.ranks if rank >= max_worker_count]:
                yield KeyConflict(
                    ("groups", k, "ranks"), f"there is no rank {bad[0]}; ranks are 0 to {max_worker_count - 1}"
                )
        yield from prepend_parent_key(
            "network", self.network.find_unknown_node_refs(max_worker_count, max_server_count)
        )
        node_names = cluster_node_names(max_worker_count, max_server_count)
        for k, link in enumerate(self.links):
            for name in dict.fromkeys(name for name in link.nodes if name not in node_names):
                yield KeyConflict(("links", k, "nodes"), f"there is no node {name}; nodes are {', '.join(node_names)}")

    def find_variation_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict if the variation of a worker's compute time can't be used for this worker."""
        for rank in range(self.workers):
            variation = self.worker_spec(rank).variation
            if variation and (reason := variation.explain_unusable_for_rank(rank)):
                groups = (k for k, group in enumerate(self.groups) if rank in group.ranks and group.variation)
                group_index = next(groups, None)
                path = ("worker",) if group_index is None else ("groups", group_index)
                yield KeyConflict((*path, "variation"), reason)
                return

    def restrict_to_cluster_size(self, worker_count: int, server_count: int) -> Self:
        """Return a copy of the cluster with the given numbers of workers and servers.

        Settings of nodes that do not exist in the copy are left out.
        """
        group_ranks = ((group, tuple(rank for rank in group.ranks if rank < worker_count)) for group in self.groups)
        node_names = cluster_node_names(worker_count, server_count)
        update = {
            "workers": worker_count,
            "groups": tuple(group.model_copy(update={"ranks": ranks}) for group, ranks in group_ranks if ranks),
            "network": self.network.restrict_to_cluster_size(worker_count, server_count),
            "links": tuple(link for link in self.links if set(link.nodes) <= set(node_names)),
        }
        return self.model_copy(update=update)


def cluster_node_names(worker_count: int, server_count: int) -> tuple[str, ...]:
    """Return the names of the nodes on the data network: all workers, then all servers."""
    return (*(f"worker-{rank}" for rank in range(worker_count)), *(f"server-{rank}" for rank in range(server_count)))


def _find_link_rates(link_settings: object) -> Iterator[float]:
    """Yield every link rate in nested dicts and lists.

    Link rates are the values of the keys `uplink`, `downlink` and `rate` that are not None.
    """
    if isinstance(link_settings, dict):
        yield from (link_settings[key] for key in ("uplink", "downlink", "rate") if link_settings.get(key) is not None)
        link_settings = tuple(link_settings.values())
    if isinstance(link_settings, list | tuple):
        for item in link_settings:
            yield from _find_link_rates(item)
