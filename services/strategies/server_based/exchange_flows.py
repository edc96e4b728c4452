"""Messages of one exchange between workers and servers, and the time that they need on the links of a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from services.compressors import Compressor, fit_to_range
from services.learning.layout import VectorRange
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.strategies.cost_model import CostModel, FlowBytes, LinkId


@dataclass(frozen=True)
class ServerExchange:
    """Exchange in which each worker pushes a vector to the owners of all shards, and gets their replies.

    Messages of a node to itself are left out.
    """

    algorithm: ServerAlgorithm
    cost_model: CostModel

    @cached_property
    def push_flows(self) -> list[FlowBytes]:
        """Sender, receiver and bytes of every push."""
        compressor, cost = self.algorithm.compressor, self.cost_model
        return [
            ((worker, owner), _count_bytes(compressor, shard, cost))
            for owner, shard in self._pair_owners_with_shards()
            for worker in self.cost_model.workers
            if worker != owner
        ]

    @cached_property
    def reply_flows(self) -> list[FlowBytes]:
        """Sender, receiver and bytes of every reply."""
        compressor, cost = self.algorithm.reply_compressor, self.cost_model
        return [
            ((owner, worker), _count_bytes(compressor, shard, cost))
            for owner, shard in self._pair_owners_with_shards()
            for worker in self.cost_model.workers
            if worker != owner
        ]

    @property
    def shard_owners(self) -> tuple[str, ...]:
        """Names of the nodes that own the shards, by shard."""
        return self.algorithm.shard_owners(self.cost_model.workers, self.cost_model.servers)

    def _pair_owners_with_shards(self) -> Iterator[tuple[str, VectorRange]]:
        """Return the name of the owner, and the range of the parameter vector, of each shard."""
        ranges = self.algorithm.shard_ranges(len(self.cost_model.workers), self.cost_model.entries)
        return zip(self.shard_owners, ranges, strict=True)

    def busiest_link(self, flows: Sequence[FlowBytes]) -> tuple[LinkId, float]:
        """Return the link that needs the longest time for the bytes of all flows, and this time in seconds."""
        busy_s = self.cost_model.busy_s_by_link(flows)
        return max(busy_s.items(), key=lambda item: item[1], default=(("up", ""), 0.0))

    @property
    def busiest_shared_link_s(self) -> float:
        """Seconds that the busiest of the links that several workers use needs for the exchange of all workers."""
        owners = {target for (_, target), _ in self.push_flows}
        own_names = set(self.cost_model.workers) - owners
        own_links = {(direction, name) for direction in ("up", "down") for name in own_names}
        busy_s = self.cost_model.busy_s_by_link([*self.push_flows, *self.reply_flows])
        return max((seconds for link, seconds in busy_s.items() if link not in own_links), default=0.0)

    def worker_busy_s_by_link(self, worker_name: str) -> dict[LinkId, float]:
        """Return the seconds for which the exchange of one worker occupies each link."""
        pushes, replies = self._flows_of_worker(worker_name)
        return self.cost_model.busy_s_by_link([*pushes, *replies])

    def predict_concurrent_s(self) -> float:
        """Return the seconds of an exchange in which the pushes of all workers begin together.

        The time runs from the begin of the pushes, on idle links, to the last reply.
        """
        return self._predict_seconds(self.push_flows, self.reply_flows)

    def predict_lone_s(self, worker_name: str) -> float:
        """Return the seconds of one worker's exchange with all shards on links without other load.

        No other worker uses the links. The worker pushes to one shard after the other.

        The first shards reply before the last ones have received everything: pieces of all pushes take turns, so only
        the last piece of each later push comes after the last piece of the first push. Shards owned by workers gain
        nothing, because a worker's uplink sends its own pushes before its replies.
        """
        pushes, replies = self._flows_of_worker(worker_name)
        seconds, cost = self._predict_seconds(pushes, replies), self.cost_model
        if len(pushes) < 2:  # noqa: PLR2004 - there is no other shard
            return seconds
        busy_s = cost.busy_s_by_link(pushes)
        is_sequential = busy_s["up", worker_name] == max(busy_s.values())
        last_pieces = [
            (flow, cost.last_message_bytes(size)) for flow, size in pushes[1:] if flow[1] not in cost.workers
        ]
        early_s = cost.busy_s_by_link(last_pieces).get(("up", worker_name), 0.0) if is_sequential else 0.0
        max_early_s = cost.transfer_s(replies) - max(cost.transfer_s([load]) for load in replies)
        return seconds - min(early_s, max_early_s)

    def _flows_of_worker(self, worker: str) -> tuple[list[FlowBytes], list[FlowBytes]]:
        """Return the pushes of one worker and the replies to these pushes."""
        pushes = [load for load in self.push_flows if load[0][0] == worker]
        return pushes, [load for load in self.reply_flows if load[0][1] == worker]

    def _predict_seconds(self, pushes: Sequence[FlowBytes], replies: Sequence[FlowBytes]) -> float:
        """Return the seconds of pushes that begin together on idle links, and of the replies after them."""
        cost = self.cost_model
        latency_s = cost.max_latency_s([flow for flow, _ in pushes]) + cost.max_latency_s([flow for flow, _ in replies])
        return latency_s + cost.transfer_s(pushes) + cost.transfer_s(replies)


def _count_bytes(compressor: Compressor, shard: VectorRange, cost_model: CostModel) -> float:
    """Return the bytes on the wire of a compressed shard (range) of the parameter vector."""
    size_bytes = fit_to_range(compressor, *shard).compressed_size_bytes(shard.size, cost_model.dtype)
    return size_bytes * cost_model.payload_scale
