"""What lies between the ports of the nodes: nothing, rack uplinks, or the links between regions."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Annotated, Literal, NamedTuple, Protocol, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt

from services.cluster.network_model import Path, Pipe
from services.cluster.spans import Span
from services.schema.component import Component, Record
from services.schema.conflicts import Conflict
from services.schema.units import Duration, Rate


class Member(Protocol):
    """A node, as far as networks know."""

    @property
    def name(self) -> str:
        """Unique."""

    @property
    def role(self) -> str:
        """`worker` or `ps_shard`."""

    @property
    def rank(self) -> int:
        """Within its role."""


class Topology(Component):
    """What lies between the ports of the nodes."""

    @abstractmethod
    def places(self, members: Sequence[Member]) -> tuple[tuple[str, ...], ...]:
        """Names of the nodes that are near each other, group by group; together all nodes, each once."""

    @abstractmethod
    def pipes(self, members: Sequence[Member]) -> tuple[Pipe, ...]:
        """Rates that flows share."""

    def paths(self, members: Sequence[Member]) -> tuple[Path, ...]:  # noqa: ARG002 - most have none
        """Delays and losses between pairs of nodes, beside those of their own links."""
        return ()

    def conflicts(self) -> Iterator[Conflict]:
        """What contradicts itself."""
        return iter(())

    def strangers(self, workers: int, servers: int) -> Iterator[Conflict]:  # noqa: ARG002 - most name nobody
        """Which nodes it names that are not there, given how many there are at most."""
        return iter(())

    def among(self, workers: int, servers: int) -> Self:  # noqa: ARG002 - most name nobody
        """The same with nothing said about nodes that are not there."""
        return self


class Switch(Topology):
    """One switch that is never the bottleneck: nothing but the nodes' own links counts."""

    kind: Literal["switch"] = "switch"

    def places(self, members: Sequence[Member]) -> tuple[tuple[str, ...], ...]:
        return (tuple(member.name for member in members),)

    def pipes(self, members: Sequence[Member]) -> tuple[Pipe, ...]:  # noqa: ARG002
        return ()


class Racks(Topology):
    """Racks of equal size, each behind an uplink that its members share.

    Workers fill the racks by rank; server k stands in rack k, round the corner. With links of 1 Gbit/s, four members
    and an uplink of 2 Gbit/s, a rack is oversubscribed 2:1.
    """

    kind: Literal["racks"] = "racks"
    size: PositiveInt = Field(description="workers per rack; the last rack may have fewer")
    uplink: Rate = Field(description="what all members of a rack together send to other racks")
    downlink: Rate | None = Field(
        None, description="what they together receive from other racks; as uplink when absent"
    )
    delay: Duration | None = Field(None, description="one-way delay between racks, beside that of the nodes' links")

    def places(self, members: Sequence[Member]) -> tuple[tuple[str, ...], ...]:
        count = max(1, -(-sum(member.role == "worker" for member in members) // self.size))
        racks: list[list[str]] = [[] for _ in range(count)]
        for member in members:
            racks[member.rank // self.size if member.role == "worker" else member.rank % count].append(member.name)
        return tuple(map(tuple, racks))

    def strangers(self, workers: int, servers: int) -> Iterator[Conflict]:  # noqa: ARG002 - they stand in racks of workers
        if self.size > workers:
            yield Conflict(("size",), f"{self.size} is more than all workers; write {workers} or less")

    def among(self, workers: int, servers: int) -> Self:  # noqa: ARG002 - they stand in racks of workers
        return self.model_copy(update={"size": min(self.size, workers)})

    def pipes(self, members: Sequence[Member]) -> tuple[Pipe, ...]:
        racks = self.places(members)
        pairs = [self._of_rack(k, racks) for k in range(len(racks))] if len(racks) > 1 else []
        return (*(up for up, _ in pairs), *(down for _, down in pairs))  # as messages pass them

    def paths(self, members: Sequence[Member]) -> tuple[Path, ...]:
        return tuple(
            Path(source=a, target=b, delay_s=self.delay)
            for here, there in product(self.places(members), repeat=2)
            for a, b in product(here, there)
            if self.delay and here != there
        )

    def _of_rack(self, number: int, racks: Sequence[tuple[str, ...]]) -> tuple[Pipe, Pipe]:
        inside, outside = racks[number], tuple(name for rack in racks if rack != racks[number] for name in rack)
        return (
            Pipe(name=f"rack-{number} up", rate_bps=self.uplink, sources=inside, targets=outside),
            Pipe(name=f"rack-{number} down", rate_bps=self.downlink or self.uplink, sources=outside, targets=inside),
        )


class Region(Record):
    """Nodes that are near each other."""

    workers: tuple[NonNegativeInt, ...] = Field((), description="ranks of workers that stand here")
    servers: tuple[NonNegativeInt, ...] = Field((), description="numbers of servers that stand here")

    def among(self, workers: int, servers: int) -> Self:
        """The same with nothing said about nodes that are not there."""
        fewer = {
            "workers": tuple(rank for rank in self.workers if rank < workers),
            "servers": tuple(rank for rank in self.servers if rank < servers),
        }
        return self.model_copy(update=fewer)


class Between(Span):
    """The link between two regions, in both directions; all nodes of a region share it."""

    regions: tuple[str, str] = Field(description="the two regions")


class Regions(Topology):
    """Groups of nodes with links between them: data centres, continents."""

    kind: Literal["regions"] = "regions"
    regions: dict[str, Region] = Field(min_length=1, description="name -> who stands there; others stand in the first")
    between: tuple[Between, ...] = Field(min_length=1, description="links between pairs of regions")

    def places(self, members: Sequence[Member]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(m.name for m in members if self._region(m) == name) for name in self.regions)

    def pipes(self, members: Sequence[Member]) -> tuple[Pipe, ...]:
        return tuple(
            Pipe(name=f"{one} to {other}", rate_bps=link.rate, sources=here, targets=there)
            for link, one, other, here, there in self._ways(members)
            if link.rate
        )

    def paths(self, members: Sequence[Member]) -> tuple[Path, ...]:
        return tuple(
            Path(
                source=a,
                target=b,
                delay_s=link.delay or 0.0,
                jitters=(link.jitter,) if link.jitter else (),
                losses=(link.loss,) if link.loss else (),
            )
            for link, _, _, here, there in self._ways(members)
            for a, b in product(here, there)
        )

    def strangers(self, workers: int, servers: int) -> Iterator[Conflict]:
        for name, region in self.regions.items():
            for role, ranks, count in (("workers", region.workers, workers), ("servers", region.servers, servers)):
                if beyond := [rank for rank in ranks if rank >= count]:
                    there = f"ranks are 0 to {count - 1}" if count else "no strategy has servers"
                    yield Conflict(("regions", name, role), f"there is no {role[:-1]} {beyond[0]}; {there}")

    def among(self, workers: int, servers: int) -> Self:
        kept = {name: region.among(workers, servers) for name, region in self.regions.items()}
        return self.model_copy(update={"regions": kept})

    def conflicts(self) -> Iterator[Conflict]:
        yield from self._twice()
        for k, link in enumerate(self.between):
            yield from (Conflict(("between", k, *path), why) for path, why in link.span_conflicts())
            for name in link.regions:
                if name not in self.regions:
                    known = ", ".join(self.regions)
                    yield Conflict(("between", k, "regions"), f"there is no region {name}; regions are {known}")
            if link.regions[0] == link.regions[1]:
                yield Conflict(("between", k, "regions"), "a link has two ends")
            if any(set(link.regions) == set(earlier.regions) for earlier in self.between[:k]):
                yield Conflict(("between", k, "regions"), "these two have a link already")

    def _twice(self) -> Iterator[Conflict]:
        """Nodes that stand in two regions."""
        seen: dict[tuple[str, int], str] = {}
        for name, region in self.regions.items():
            for role, ranks in (("workers", region.workers), ("servers", region.servers)):
                for rank in ranks:
                    if other := seen.get((role, rank)):
                        yield Conflict(("regions", name, role), f"{rank} stands in {other} already")
                    seen[role, rank] = name

    def _region(self, member: Member) -> str:
        key = "workers" if member.role == "worker" else "servers"
        found = (name for name, region in self.regions.items() if member.rank in getattr(region, key))
        return next(found, next(iter(self.regions)))

    def _ways(self, members: Sequence[Member]) -> Iterator["_Way"]:
        groups = dict(zip(self.regions, self.places(members), strict=True))
        for link in (given.resolved for given in self.between):
            one, other = link.regions
            for a, b in ((one, other), (other, one)):
                if groups[a] and groups[b]:
                    yield _Way(link, a, b, groups[a], groups[b])


class _Way(NamedTuple):
    """One direction of a link between regions."""

    link: Between
    source: str
    target: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]


AnyTopology: TypeAlias = Annotated[Switch | Racks | Regions, Field(discriminator="kind")]


class PairLink(Span):
    """A link between two nodes that is slower or longer than the rest of the network."""

    nodes: tuple[str, str] = Field(description="such as [worker-0, worker-3]; traffic from the first to the second")
    both_ways: bool = Field(default=True, description="the same from the second to the first")

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        """(source, target), once or twice."""
        return tuple(pairwise((*self.nodes, *self.nodes[:1] * self.both_ways)))

    def conflicts(self, earlier: Sequence[Self]) -> Iterator[Conflict]:
        """What is wrong with it, given the links before it in the list."""
        yield from self.span_conflicts()
        if self.nodes[0] == self.nodes[1]:
            yield Conflict(("nodes",), "a link has two ends")
        elif any(set(self.ways) & set(link.ways) for link in earlier):
            yield Conflict(("nodes",), "these two have a link already; one holds all that lies between them")
