"""Which machines are emulated, and how are they linked?"""

from collections.abc import Iterator
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from services.component import Record
from services.conflict import Conflict, refuse
from services.devices import SPEEDS, AnyVariation, DeviceName
from services.network import AnyTopology, PairLink, Port, PortOverride, Switch
from services.units import Bytes, Throughput

Device: TypeAlias = Literal["auto", "cpu", "cuda"]


class Server(Port):
    """One parameter server."""

    memory: Bytes = Field(Bytes("512MiB"), description="memory limit of its container")
    cpus: PositiveFloat = Field(1.0, description="share of host cores that its container may use")


class Worker(Port):
    """One worker."""

    device: Device = Field("auto", description="where its arrays live; auto takes a GPU where there is one")
    throughput: Throughput | None = Field(
        None, description="paced speed, of the reference when a profile is given; as fast as this host when absent"
    )
    profile: DeviceName | None = Field(None, description="a known device; its throughput relative to an A100")
    speed: PositiveFloat = Field(1.0, description="what the paced speed is multiplied by")
    variation: AnyVariation | None = Field(None, description="how the paced speed varies from step to step")
    memory: Bytes = Field(Bytes("512MiB"), description="memory limit of its container")
    cpus: PositiveFloat = Field(1.0, description="share of host cores that its container may use")

    @property
    def samples_per_s(self) -> float | None:
        """The paced speed; None for a worker that is as fast as this host."""
        relative = SPEEDS[self.profile] if self.profile else 1.0
        return self.throughput and self.throughput * relative * self.speed


class Group(PortOverride):
    """Workers that differ from `worker`; a key left out is inherited from there."""

    name: str = Field(min_length=1)
    ranks: tuple[NonNegativeInt, ...] = Field(min_length=1, description="which workers, counted from 0")
    device: Device | None = None
    throughput: Throughput | None = None
    profile: DeviceName | None = None
    speed: PositiveFloat | None = None
    variation: AnyVariation | None = None
    memory: Bytes | None = None
    cpus: PositiveFloat | None = None

    def of(self, worker: Worker) -> Worker:
        """`worker` with the keys that this group gives."""
        given = {key: value for key, value in self if key in Worker.model_fields and value is not None}
        return worker.model_copy(update=given)

    def conflicts(self, position: int, earlier: tuple[Self, ...]) -> Iterator[Conflict]:
        """What this group, at its position in the list, takes away from groups before it."""
        if any(self.name == group.name for group in earlier):
            yield Conflict(("groups", position, "name"), f"there is a group {self.name} already; names are unique")
        for rank in sorted({rank for group in earlier for rank in group.ranks} & set(self.ranks)):
            yield Conflict(
                ("groups", position, "ranks"), f"rank {rank} is in a group already; it belongs to one at most"
            )


class Cluster(Record):
    """The emulated machines."""

    workers: int = Field(1, ge=1, description="number of workers")
    worker: Worker = Field(Worker(), description="what every worker is like")
    server: Server = Field(Server(), description="what every server of a parameter_server strategy is like")
    groups: tuple[Group, ...] = Field((), description="workers that differ")
    network: AnyTopology = Field(Switch(), description="what lies between the nodes' links")
    links: tuple[PairLink, ...] = Field((), description="pairs of nodes with a limit or a delay of their own")

    @model_validator(mode="after")
    def _groups_are_apart(self) -> Self:
        refuse(conflict for k, group in enumerate(self.groups) for conflict in group.conflicts(k, self.groups[:k]))
        refuse(Conflict(("network", *path), why) for path, why in self.network.conflicts(self.workers))
        return self

    def rank(self, rank: int) -> Worker:
        """What the worker of this rank is like."""
        return next((group.of(self.worker) for group in self.groups if rank in group.ranks), self.worker)


def first_workers(cluster: dict[str, Any]) -> dict[str, Any]:
    """A cluster's document without the ranks of groups that its number of workers leaves no room for."""
    kept = ((group, [rank for rank in group["ranks"] if rank < cluster["workers"]]) for group in cluster["groups"])
    return cluster | {"groups": [group | {"ranks": ranks} for group, ranks in kept if ranks]}
