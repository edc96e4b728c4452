"""Which nodes hold the parameters of a parameter server, and how much of them does each?"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field, PositiveInt

from services.learning.layout import VectorRange, proportional_ranges
from services.schema.component import Component

Node = TypeVar("Node")


class Shares(NamedTuple):
    """Parts of the vector, in any unit: only their ratios count; a node whose share is 0 holds nothing."""

    servers: tuple[int, ...]  # by rank
    workers: tuple[int, ...]  # by rank


class Placement(Component):
    """Where shards live. Shards are numbered in the order of their nodes: servers, then workers."""

    def nodes(self, servers: int) -> int:
        """How many nodes there are that only serve."""
        return servers

    @abstractmethod
    def shares(self, workers: int, servers: int) -> Shares:
        """What part each node holds."""

    def refusal(self, workers: int, servers: int) -> str | None:  # noqa: ARG002 - most take any number
        """Why it can't be placed like this; None when it can."""
        return None

    def refusal_after(self, workers: int, servers: int) -> str | None:
        """The same where workers have been alone so far, and a switch calls servers in."""
        return self.refusal(workers, servers)

    def computing(self, workers: int) -> int:
        """How many workers compute gradients: the first so many."""
        return workers

    def holders(self, workers: Sequence[Node], servers: Sequence[Node]) -> tuple[Node, ...]:
        """The nodes that hold a shard, by shard, given all by rank."""
        shares = self.shares(len(workers), len(servers))
        parts = zip((*servers, *workers), (*shares.servers, *shares.workers), strict=True)
        return tuple(name for name, part in parts if part)

    def ranges(self, workers: int, servers: int, entries: int) -> tuple[VectorRange, ...]:
        """What each shard holds of a vector of `entries`; equal shares differ by one entry at most."""
        shares = self.shares(workers, self.nodes(servers))
        return proportional_ranges(entries, [part for part in (*shares.servers, *shares.workers) if part])


class Dedicated(Placement):
    """Nodes of their own hold equal ranges.

    M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
    """

    kind: Literal["dedicated"] = "dedicated"

    def shares(self, workers: int, servers: int) -> Shares:
        return Shares((1,) * servers, (0,) * workers)


class Colocated(Placement):
    """Every worker's process also holds one range; what it sends to itself stays inside and is not counted.

    Per step a node sends 2(n-1)/n of the vector, as in a ring.
    """

    kind: Literal["colocated"] = "colocated"

    def nodes(self, servers: int) -> int:  # noqa: ARG002 - none but workers
        return 0

    def refusal(self, workers: int, servers: int) -> str | None:  # noqa: ARG002 - it depends on `servers` alone
        if servers == 1:
            return None
        return f"colocated shards live on the workers, one each; leave servers out ({servers} was written)"

    def shares(self, workers: int, servers: int) -> Shares:
        return Shares((0,) * servers, (1,) * workers)


class Spare(Placement):
    """k nodes without accelerators help n workers that serve, too, so that every link carries the same bytes.

    Y. Jiang et al., "A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU
    clusters" (BytePS), OSDI 2020: a spare node holds 2(n-1)/(n²+kn-2k) of the vector, a worker's own server
    (n-k)/(n²+kn-2k). We differ: servers update as well, and pushes and answers of a range don't overlap.
    """

    kind: Literal["spare"] = "spare"

    def refusal(self, workers: int, servers: int) -> str | None:
        if servers <= workers or workers == 1:  # one worker, whose baseline may not fail, has nothing to share
            return None
        return f"{servers} spare servers are more than {workers} workers can fill; at most as many as workers"

    def shares(self, workers: int, servers: int) -> Shares:
        if servers >= workers:
            return Shares((1,) * servers, (0,) * workers)
        return Shares((2 * (workers - 1),) * servers, (workers - servers,) * workers)


class Promoted(Placement):
    """The last workers, which have done as many steps as the others, only serve from a switch on: equal ranges.

    N. Provatas et al., "Strategy-Switch", IEEE Access 13, 2025, as a public implementation reads it. It promotes the
    nodes with the shortest round trips; we promote the last ranks, so that a scenario says which they are. The batch
    stays: those that are left share it among them.
    """

    kind: Literal["promoted"] = "promoted"
    workers: PositiveInt = Field(default=1, description="how many become servers; one at least goes on as a worker")

    def nodes(self, servers: int) -> int:  # noqa: ARG002 - none but those that have been workers
        return 0

    def refusal(self, workers: int, servers: int) -> str | None:  # noqa: ARG002 - it depends on neither
        return "promoted servers have been workers; they stand in after of a strategy_switch from all_reduce"

    def refusal_after(self, workers: int, servers: int) -> str | None:
        if servers != 1:
            return f"promoted workers say themselves how many they are; leave servers out ({servers} was written)"
        if self.workers < workers or workers == 1:  # one worker, whose baseline may not fail, serves itself
            return None
        return f"{self.workers} promoted workers of {workers} leave nobody to compute; at most {workers - 1}"

    def computing(self, workers: int) -> int:
        return max(1, workers - self.workers)

    def shares(self, workers: int, servers: int) -> Shares:
        served = min(self.workers, workers)
        return Shares((0,) * servers, (0,) * (workers - served) + (1,) * served)


AnyPlacement: TypeAlias = Annotated[Dedicated | Colocated | Spare | Promoted, Field(discriminator="kind")]
