"""Placement: which nodes own the shards of the parameter vector, and how large each shard is.

A dedicated server computes no gradients. A colocated shard is owned by a worker. A promoted server has been a worker
until a switch of strategies.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field, PositiveInt

from services.learning.layout import VectorRange, proportional_vector_ranges
from services.schema.component import ScenarioComponent

NodeT = TypeVar("NodeT")  # a node's name or number


class ShardProportions(NamedTuple):
    """Relative sizes of the parameter shards of all servers and workers.

    Only ratios count; a node with size 0 owns no shard.
    """

    servers: tuple[int, ...]  # by rank
    workers: tuple[int, ...]  # by rank


class Placement(ScenarioComponent):
    """Base class of placements, which assign the shards of the parameter vector to nodes.

    Shards are numbered in the order of their owners: servers first, then workers. The number of declared servers is
    that of the scenario; a placement may add fewer nodes for them.
    """

    def dedicated_server_count(self, scenario_server_count: int) -> int:
        """Return the number of dedicated servers: nodes that own a shard and never compute gradients."""
        return scenario_server_count

    @abstractmethod
    def compute_shard_proportions(self, worker_count: int, server_count: int) -> ShardProportions:
        """Return the relative sizes of the shards that servers and workers own."""

    def node_count_conflict(self, worker_count: int, scenario_server_count: int) -> str | None:  # noqa: ARG002 - most take any number
        """Return why shards can't be placed on a certain number of workers and servers.

        Return None if they can be placed.
        """
        return None

    def explain_switch_conflict(self, worker_count: int, scenario_server_count: int) -> str | None:
        """Return why this placement of shards can't be used after a strategy switch.

        The strategy before the switch has no servers. Return None if the placement can be used.
        """
        return self.node_count_conflict(worker_count, scenario_server_count)

    def count_gradient_workers(self, worker_count: int) -> int:
        """Return the number of workers that compute gradients.

        These workers have the lowest ranks.
        """
        return worker_count

    def shard_owners(self, worker_nodes: Sequence[NodeT], server_nodes: Sequence[NodeT]) -> tuple[NodeT, ...]:
        """Return the node that owns each shard, by shard number.

        Both arguments list nodes by rank.
        """
        proportions = self.compute_shard_proportions(len(worker_nodes), len(server_nodes))
        nodes = zip((*server_nodes, *worker_nodes), (*proportions.servers, *proportions.workers), strict=True)
        return tuple(node for node, proportion in nodes if proportion)

    def shard_ranges(
        self, worker_count: int, scenario_server_count: int, parameter_count: int
    ) -> tuple[VectorRange, ...]:
        """Return the range of the parameter vector that each shard covers.

        Shards of equal share differ by at most one entry.
        """
        parts = self.compute_shard_proportions(worker_count, self.dedicated_server_count(scenario_server_count))
        return proportional_vector_ranges(parameter_count, [part for part in (*parts.servers, *parts.workers) if part])


class DedicatedPlacement(Placement):
    """Equal shards of the parameter vector on dedicated servers, which are not workers.

    M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
    """

    kind: Literal["dedicated"] = "dedicated"

    def compute_shard_proportions(self, worker_count: int, server_count: int) -> ShardProportions:
        return ShardProportions((1,) * server_count, (0,) * worker_count)


class ColocatedPlacement(Placement):
    """Equal shards of the parameter vector on the workers.

    Each worker's process also runs the server of one shard. Messages from a worker to its own shard stay inside the
    process and are not counted. Per step a node sends 2(n-1)/n of the vector, as in a ring.
    """

    kind: Literal["colocated"] = "colocated"

    def dedicated_server_count(self, scenario_server_count: int) -> int:  # noqa: ARG002 - workers own all shards
        return 0

    def node_count_conflict(self, worker_count: int, scenario_server_count: int) -> str | None:  # noqa: ARG002 - depends on the servers alone
        if scenario_server_count == 1:
            return None
        return f"placement colocated puts one shard on each worker; leave out servers (found: {scenario_server_count})"

    def compute_shard_proportions(self, worker_count: int, server_count: int) -> ShardProportions:
        return ShardProportions((0,) * server_count, (1,) * worker_count)


class SpareNodePlacement(Placement):
    """Shards on spare nodes and on workers, sized for equal traffic on all links.

    The shards of k spare nodes and n workers have such sizes that every link carries the same number of bytes. A spare
    node has no accelerator and computes no gradients. Y. Jiang et al., "A unified architecture for accelerating
    distributed DNN training in heterogeneous GPU/CPU clusters" (BytePS), OSDI 2020: a spare node owns 2(n-1)/(n²+kn-2k)
    of the vector, a worker (n-k)/(n²+kn-2k). We differ: the servers also run the optimiser, and the push and the reply
    of a shard do not overlap.
    """

    kind: Literal["spare"] = "spare"

    def node_count_conflict(self, worker_count: int, scenario_server_count: int) -> str | None:
        if scenario_server_count <= worker_count or worker_count == 1:  # the single worker of a baseline must not fail
            return None
        return (
            f"{scenario_server_count} spare servers are more than {worker_count} workers can keep busy; "
            "use at most as many servers as workers"
        )

    def compute_shard_proportions(self, worker_count: int, server_count: int) -> ShardProportions:
        if server_count >= worker_count:
            return ShardProportions((1,) * server_count, (0,) * worker_count)
        return ShardProportions((2 * (worker_count - 1),) * server_count, (worker_count - server_count,) * worker_count)


class PromotedWorkerPlacement(Placement):
    """Equal shards on those workers that become servers at a strategy switch.

    These are the workers of highest rank; they compute no gradients after the switch. N. Provatas et al.,
    "Strategy-Switch", IEEE Access 13, 2025, as implemented in public code. That code promotes the nodes with the
    shortest round trips. We promote the last ranks, so that a scenario determines which they are. The batch stays the
    same: the remaining workers share it.
    """

    kind: Literal["promoted"] = "promoted"
    workers: PositiveInt = Field(1, description="number of workers that become servers; at least one must remain")

    def dedicated_server_count(self, scenario_server_count: int) -> int:  # noqa: ARG002 - workers own all shards
        return 0

    def node_count_conflict(self, worker_count: int, scenario_server_count: int) -> str | None:  # noqa: ARG002 - always a conflict
        return (
            "placement promoted turns workers into servers at a switch; "
            "use it only in after of a strategy_switch whose before is all_reduce"
        )

    def explain_switch_conflict(self, worker_count: int, scenario_server_count: int) -> str | None:
        if scenario_server_count != 1:
            return (
                "placement promoted declares the number of servers in its key workers; "
                f"leave out servers (found: {scenario_server_count})"
            )
        if (
            self.workers < worker_count or worker_count == 1
        ):  # the single worker of a baseline must not fail; it serves itself
            return None
        return (
            f"placement promoted turns {self.workers} of {worker_count} workers into servers, so no worker remains to "
            f"compute; promote at most {worker_count - 1}"
        )

    def count_gradient_workers(self, worker_count: int) -> int:
        return max(1, worker_count - self.workers)

    def compute_shard_proportions(self, worker_count: int, server_count: int) -> ShardProportions:
        promoted = min(self.workers, worker_count)
        return ShardProportions((0,) * server_count, (0,) * (worker_count - promoted) + (1,) * promoted)


AnyPlacement: TypeAlias = Annotated[
    DedicatedPlacement | ColocatedPlacement | SpareNodePlacement | PromotedWorkerPlacement, Field(discriminator="kind")
]
