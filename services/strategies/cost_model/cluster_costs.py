"""Cost model of a cluster: its link speeds and compute times."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TypeAlias

import numpy as np
from pydantic import InstanceOf

from services.cluster.links.fluid_link import choose_message_bytes, to_goodput_bytes_per_s
from services.cluster.links.message_lengths import MessageSizeLimits
from services.cluster.network import Network
from services.schema.component import FrozenRecord
from services.strategies.cost_model.compute_times import ComputeTimes

Flow: TypeAlias = tuple[str, str]  # names of sender and receiver
FlowBytes: TypeAlias = tuple[Flow, float]  # a flow and its payload bytes
LinkId: TypeAlias = tuple[str, str | int]  # ("up" | "down", node name) or ("shared", number of the shared link)


class CostModel(FrozenRecord):
    """Cost model of a cluster: nodes, link speeds and compute times.

    A closed form predicts the step time from the cost model.
    """

    workers: tuple[str, ...]  # node names by rank
    servers: tuple[str, ...] = ()  # names of dedicated servers by rank
    entries: int  # of the parameter vector
    dtype: str
    vectors_per_exchange: int = 1  # more where workers also exchange the vectors of the optimiser's state
    payload_scale: float = 1.0  # bytes on the wire per byte of the vector; above 1 where a larger payload is declared
    alpha_s: float = 0.0  # latency per message that the host adds (α), in virtual seconds; 0 without calibration
    message_lengths: MessageSizeLimits | None = None  # message lengths; None: every vector is one message
    uplink_s_per_byte: dict[str, float]  # by node name; 0 for an unshaped link
    downlink_s_per_byte: dict[str, float]
    network: Network = Network()
    compute_s: float = 0.0  # compute time of one step of every worker, unless `step_compute_times` is given
    step_compute_times: InstanceOf[ComputeTimes] | None = None  # by step and rank
    steps_per_evaluation: int | None = None  # steps from one evaluation to the next; None: not known
    seed: int = 0  # of the trial

    def concurrent_transfer_s(self, sender_receiver_pairs: Collection[Flow], bytes_per_pair: float) -> float:
        """Return the seconds in which the given node pairs transfer equally many bytes each.

        All node pairs start together.
        """
        return self.transfer_s([(flow, bytes_per_pair) for flow in sender_receiver_pairs])

    def transfer_s(self, flows_with_bytes: Iterable[FlowBytes]) -> float:
        """Return the seconds in which flows that start together transfer their bytes.

        The result is the time of the busiest link.
        """
        return max(self.busy_s_by_link(flows_with_bytes).values(), default=0.0)

    def busy_s_by_link(self, flows_with_bytes: Iterable[FlowBytes]) -> dict[LinkId, float]:
        """Return the seconds that each link needs for the bytes of all flows over this link."""
        link_bytes = defaultdict[LinkId, float](float)
        for (source, target), size_bytes in flows_with_bytes:
            link_bytes["up", source] += size_bytes
            link_bytes["down", target] += size_bytes
            for number, pipe in enumerate(self.network.shared_links):
                link_bytes["shared", number] += size_bytes * pipe.carries_flow(source, target)
        return {link: size_bytes * self._link_s_per_byte(link) for link, size_bytes in link_bytes.items()}

    def _link_s_per_byte(self, link: LinkId) -> float:
        direction, name = link
        if isinstance(name, int):
            return 1 / to_goodput_bytes_per_s(self.network.shared_links[name].rate_bps)
        return self.uplink_s_per_byte[name] if direction == "up" else self.downlink_s_per_byte[name]

    @property
    def vector_bytes(self) -> int:
        """Bytes of the parameter vector on the wire."""
        return round(self.entries * self._entry_bytes)

    @property
    def _entry_bytes(self) -> float:
        """Bytes of one entry of the parameter vector on the wire."""
        return np.dtype(self.dtype).itemsize * self.payload_scale

    @property
    def fluid_message_bytes(self) -> float:
        """Bytes of the messages into which the vector is cut where the fluid model limits link rates."""
        return self.round_to_whole_entries(
            choose_message_bytes(self.vector_bytes, is_declared_size=self.payload_scale > 1)
        )

    def round_to_whole_entries(self, message_bytes: int) -> float:
        """Return the size of the longest message of at most `message_bytes` that contains whole entries.

        Only with a declared payload, entries are so large that the difference matters. Every message has an entry.
        """
        if self.payload_scale == 1:
            return message_bytes
        return max(1, int(message_bytes // self._entry_bytes)) * self._entry_bytes

    def last_message_bytes(self, vector_range_bytes: float) -> float:
        """Return the size in bytes of the last message when a range of the vector is cut into messages.

        It may be smaller than the other messages. `vector_range_bytes` is the size of the range on the wire.
        """
        message_bytes = round(self.fluid_message_bytes / self.payload_scale)  # in bytes of the trained model
        range_bytes = round(vector_range_bytes / self.payload_scale)
        return (range_bytes % message_bytes or min(range_bytes, message_bytes)) * self.payload_scale

    @property
    def compute_times(self) -> ComputeTimes:
        """Compute times of the workers by step and rank."""
        return self.step_compute_times or ComputeTimes.of_equal_steps((self.compute_s,) * len(self.workers))

    @property
    def has_unequal_rates(self) -> bool:
        """Whether workers have access links of different rates."""
        return len({(self.uplink_s_per_byte[name], self.downlink_s_per_byte[name]) for name in self.workers}) > 1

    @property
    def delay_spread_s(self) -> float:
        """Largest difference of the delays from workers to one kind of node, workers or servers, in seconds."""
        delays = {(path.source, path.target): path.delay_s for path in self.network.paths}
        delays_to_nodes = (
            [delays.get((worker, node), 0.0) for worker in self.workers for node in nodes if node != worker] or [0.0]
            for nodes in (self.workers, self.servers)
        )
        return max(max(column) - min(column) for column in delays_to_nodes)

    @property
    def has_unequal_links(self) -> bool:
        """Whether workers have different access links or paths, or share further links."""
        return self.has_unequal_rates or self.delay_spread_s > 0 or bool(self.network.shared_links)

    def max_latency_s(self, sender_receiver_pairs: Collection[Flow]) -> float:
        """Return the largest latency from sender to receiver of any flow, in seconds.

        The latency includes the host's own latency.
        """
        delays = {(path.source, path.target): path.delay_s for path in self.network.paths}
        return self.alpha_s + max((delays.get(flow, 0.0) for flow in sender_receiver_pairs), default=0.0)
