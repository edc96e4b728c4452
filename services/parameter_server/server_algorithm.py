"""Server algorithm: the policies of the servers in a training phase.

The policies determine how servers update shards and reply to workers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from services.compressors import Compressor, IdentityCompressor
from services.learning.layout import VectorRange
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.placement import AnyPlacement, NodeT
from services.parameter_server.staleness import AnyStalenessWeighting
from services.parameter_server.synchronisers import AnySynchroniser
from services.parameter_server.update_rules import UpdateRule
from services.schema.arrays import HostArray

IDENTITY_COMPRESSOR = IdentityCompressor()
# From the updater, the parameters of the shard, and the number of workers.
UpdateRuleFactory: TypeAlias = Callable[[ParameterUpdater, HostArray, int], UpdateRule]


@dataclass(frozen=True)
class ServerAlgorithm:
    """Policies of the servers in a training phase, such as placement and synchronisation.

    The policies are placement of shards, synchronisation, staleness and updates. A server owns one shard: a range of
    the parameter vector.
    """

    servers: int  # as declared; the placement decides how many nodes are added for them
    placement: AnyPlacement
    synchroniser: AnySynchroniser
    staleness_weighting: AnyStalenessWeighting  # of pushed vectors
    compressor: Compressor  # of pushed vectors
    make_update_rule: UpdateRuleFactory
    reply_compressor: Compressor = IDENTITY_COMPRESSOR  # others than identity get differences of parameters

    @property
    def dedicated_server_count(self) -> int:
        """Number of dedicated servers: nodes that own a shard and never compute gradients."""
        return self.placement.dedicated_server_count(self.servers)

    def shard_owners(self, worker_nodes: Sequence[NodeT], server_nodes: Sequence[NodeT]) -> tuple[NodeT, ...]:
        """Return the node that owns each shard, by shard number.

        Both arguments list nodes by rank.
        """
        return self.placement.shard_owners(worker_nodes, server_nodes)

    def shard_ranges(self, worker_count: int, parameter_count: int) -> tuple[VectorRange, ...]:
        """Return the range of the parameter vector that each shard covers.

        The vector has `parameter_count` entries.
        """
        return self.placement.shard_ranges(worker_count, self.servers, parameter_count)

    def count_gradient_workers(self, worker_count: int) -> int:
        """Return the number of workers that compute gradients.

        These workers have the lowest ranks.
        """
        return self.placement.count_gradient_workers(worker_count)

    def gradients_per_update(self, worker_count: int) -> int:
        """Return the number of gradients that a server averages in one update of its shard."""
        return self.synchroniser.gradients_per_update(self.count_gradient_workers(worker_count))
