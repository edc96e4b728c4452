"""Rates of the links of a trial in wall-clock time, from which rate probes are planned."""

from collections.abc import Iterable, Iterator
from math import inf

from compose.shaping.link_state import data_network_nodes, link_state_of
from compose.shaping.rate_probes import ProbedLimit, ProbeFlow, RateProbe
from services.cluster.network import NetworkPath, SharedLink
from services.plan import NodePlan, Plan


class LinkRatesInWallTime:
    """Rates of links, and rates between pairs of nodes, in bit/s of wall time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = data_network_nodes(plan)
        self._states = {node.name: link_state_of(plan, node) for node in self.nodes}

    def ordered_node_pairs(self) -> Iterator[tuple[NodePlan, NodePlan]]:
        """Yield all ordered pairs of nodes.

        The pairs of each node with its successor come first, so that each node gets a different partner.
        """
        for distance in range(1, len(self.nodes)):
            for k, node in enumerate(self.nodes):
                yield node, self.nodes[(k + distance) % len(self.nodes)]

    def uplink_bps(self, node_name: str) -> float:
        """Return the uplink rate of a node.

        It is inf if the uplink is not shaped.
        """
        return self._states[node_name].uplink_bps or inf

    def downlink_bps(self, node_name: str) -> float:
        """Return the downlink rate of a node.

        It is inf if the downlink is not shaped.
        """
        return self._states[node_name].downlink_bps or inf

    def rate_limits_between(self, source: str, target: str) -> tuple[SharedLink, ...]:
        """Return the rate limits on the path between two nodes.

        The limits of the nodes' own links are left out.
        """
        return self.plan.network.shared_links_between(source, target)

    def min_limit_between_bps(self, source: str, target: str) -> float:
        """Return the lowest rate of the shared links between two nodes.

        Access links are left out. The rate is infinite if there are none.
        """
        limits = self.rate_limits_between(source, target)
        return min((limit.rate_bps / self.plan.dilation for limit in limits), default=inf)

    def flow_rate_bps(self, source: str, target: str) -> float:
        """Return the highest rate that a single flow between two nodes can reach.

        It is the lowest rate limit on the path of the flow.
        """
        return min(self.uplink_bps(source), self.min_limit_between_bps(source, target), self.downlink_bps(target))

    def find_max_path_delay_wall_s(self, probe_flows: Iterable[ProbeFlow]) -> float:
        """Return the longest delay of the network paths of several flows, in seconds of wall time."""
        paths: list[NetworkPath] = [self.plan.network.path_between(*flow) for flow in probe_flows]
        return max((path.delay_s for path in paths), default=0.0) * self.plan.dilation

    def has_losses(self, probe_flows: Iterable[ProbeFlow]) -> bool:
        """Return whether packet loss is declared for the path of any flow.

        A probe could not measure the rate of such a flow.
        """
        return any(self.plan.network.path_between(*flow).losses for flow in probe_flows)

    def make_rate_probe(
        self,
        probe_name: str,
        probed_links: tuple[ProbedLimit, ...],
        probe_flows: tuple[ProbeFlow, ...],
        total_send_rate_bps: float,
        wall_time_link_rate_bps: float,
    ) -> RateProbe:
        """Return a rate probe whose flows send `total_send_rate_bps` through a link.

        The link has the rate `wall_time_link_rate_bps`.
        """
        rate_bps = min(total_send_rate_bps, wall_time_link_rate_bps)
        return RateProbe(
            name=probe_name,
            limits=probed_links,
            max_rates_bps={flow: min(rate_bps, self.flow_rate_bps(*flow)) for flow in probe_flows},
            rate_bps=rate_bps,
            delay_s=self.find_max_path_delay_wall_s(probe_flows),
            fills_limit=total_send_rate_bps >= wall_time_link_rate_bps,
        )
