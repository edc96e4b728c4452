"""Server algorithm: what the servers of a training phase run, and which nodes own the shards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from services.compressors import Compressor
from services.learning.layout import VectorRange
from services.learning.optimisers import AnyOptimiser
from services.parameter_server.placement import AnyPlacement, Node
from services.parameter_server.staleness import AnyStaleness
from services.parameter_server.synchronisers import AnySynchroniser
from services.parameter_server.update_rules import UpdateRule
from services.schema.arrays import HostArray

UpdateRuleFactory: TypeAlias = Callable[[AnyOptimiser, HostArray, int], UpdateRule]


@dataclass(frozen=True)
class ServerAlgorithm:
    """What every server of a phase runs. A server owns one shard: a range of the parameter vector."""

    servers: int  # as declared; the placement decides how many nodes that adds
    placement: AnyPlacement
    synchroniser: AnySynchroniser
    staleness: AnyStaleness  # weight of a pushed vector by its staleness
    compressor: Compressor  # of pushed vectors; replies are not compressed
    make_update_rule: UpdateRuleFactory  # from the optimiser, the parameters of the shard, and the number of workers

    @property
    def server_count(self) -> int:
        """Number of nodes that own a shard and compute no gradients."""
        return self.placement.nodes(self.servers)

    def shard_owners(self, workers: Sequence[Node], servers: Sequence[Node]) -> tuple[Node, ...]:
        """Return the node that owns each shard, in the order of the shards; `workers` and `servers` are by rank."""
        return self.placement.holders(workers, servers)

    def shards(self, workers: int, entries: int) -> tuple[VectorRange, ...]:
        """Return the range of each shard in a vector of `entries` entries."""
        return self.placement.ranges(workers, self.servers, entries)

    def computing_workers(self, workers: int) -> int:
        """Return how many of the workers compute gradients: those with the lowest ranks."""
        return self.placement.computing(workers)

    def gradients_per_update(self, workers: int) -> int:
        """Return how many gradients the servers average in one update."""
        return self.synchroniser.gathers(self.computing_workers(workers))
