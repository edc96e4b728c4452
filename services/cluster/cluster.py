"""Which machines are emulated, and how are they linked?"""

from collections.abc import Iterator
from typing import Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from services.cluster.device_profiles import SPEEDS, AnyVariation, DeviceName
from services.cluster.network import AnyTopology, PairLink, Port, PortOverride, Switch
from services.schema.component import Record
from services.schema.conflicts import Conflict, refuse
from services.schema.units import Bytes, Throughput

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

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.throughput is None:
            given = {"profile": self.profile, "speed": self.speed != 1.0, "variation": self.variation}
            for key in (key for key, value in given.items() if value):
                yield Conflict((key,), "nothing is paced; write throughput beside it")


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
        """`worker` with the keys that this group gives; a link that has a name is another link altogether."""
        given = {key: value for key, value in self if key in Worker.model_fields and value is not None}
        instead = dict.fromkeys(PortOverride.model_fields) if self.link else {}
        return worker.model_copy(update=instead | given)

    def conflicts(self, worker: Worker, position: int, earlier: tuple[Self, ...]) -> Iterator[Conflict]:
        """What makes no sense of this group, at its position in the list, beside `worker` and the groups before it."""
        yield from (Conflict(("groups", position, *path), why) for path, why in self.of(worker).conflicts())
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
    def _makes_sense(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[Conflict]:
        for k, group in enumerate(self.groups):
            yield from group.conflicts(self.worker, k, self.groups[:k])
        yield from (Conflict(("network", *path), why) for path, why in self.network.conflicts())
        for k, link in enumerate(self.links):
            yield from (Conflict(("links", k, *path), why) for path, why in link.conflicts(self.links[:k]))

    def rank(self, rank: int) -> Worker:
        """What the worker of this rank is like."""
        return next((group.of(self.worker) for group in self.groups if rank in group.ranks), self.worker)

    def port(self, node: str) -> Port:
        """The link of the node with this name, without a profile."""
        role, _, rank = node.rpartition("-")
        return (self.rank(int(rank)) if role == "worker" else self.server).resolved

    @property
    def has_rates(self) -> bool:
        """Whether anything between workers has a declared rate."""
        ports = [self.rank(rank).resolved for rank in range(self.workers)]
        return any(_rates([part.model_dump() for part in (*ports, *self.links, self.network)]))

    def strangers(self, workers: int, servers: int) -> Iterator[Conflict]:
        """Which nodes it names that are not there, given how many there are at most."""
        for k, group in enumerate(self.groups):
            if beyond := [rank for rank in group.ranks if rank >= workers]:
                yield Conflict(("groups", k, "ranks"), f"there is no rank {beyond[0]}; ranks are 0 to {workers - 1}")
        yield from (Conflict(("network", *path), why) for path, why in self.network.strangers(workers, servers))
        nodes = names(workers, servers)
        for k, link in enumerate(self.links):
            for name in dict.fromkeys(name for name in link.nodes if name not in nodes):
                yield Conflict(("links", k, "nodes"), f"there is no node {name}; nodes are {', '.join(nodes)}")

    def among(self, workers: int, servers: int) -> Self:
        """The same with so many nodes, and nothing said about others."""
        ranks = ((group, tuple(rank for rank in group.ranks if rank < workers)) for group in self.groups)
        nodes = names(workers, servers)
        fewer = {
            "workers": workers,
            "groups": tuple(group.model_copy(update={"ranks": kept}) for group, kept in ranks if kept),
            "network": self.network.among(workers, servers),
            "links": tuple(link for link in self.links if set(link.nodes) <= set(nodes)),
        }
        return self.model_copy(update=fewer)


def names(workers: int, servers: int) -> tuple[str, ...]:
    """Names of the nodes on the data network."""
    return (*(f"worker-{rank}" for rank in range(workers)), *(f"server-{rank}" for rank in range(servers)))


def _rates(part: object) -> Iterator[object]:
    """Everything in a document that is declared as a rate."""
    if isinstance(part, dict):
        yield from (part[key] for key in ("uplink", "downlink", "rate") if part.get(key) is not None)
        part = tuple(part.values())
    if isinstance(part, list | tuple):
        for inner in part:
            yield from _rates(inner)
