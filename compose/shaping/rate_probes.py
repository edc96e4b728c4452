"""Records of the probes that test links before training: their flows, rates and durations."""

from collections import defaultdict
from typing import TypeAlias

from services.cluster.links.ethernet import FRAME_BYTES
from services.schema.component import FrozenRecord

MIN_PROBE_S, MAX_PROBE_S, MIN_PROBE_FRAMES = 0.15, 1.0, 40
MAX_CONCURRENT_BPS = 1.5e9  # total rate of concurrent probes; beyond, they would measure the host's cores
# Beyond this rate, a probe would measure the host. A check before the run decides whether such rates are allowed; the
# durations of its steps show whether it reaches them.
MAX_PROBE_BPS = 2.5e9
OVERSEND_FACTOR = 1.5  # rate sent over rate expected to arrive

ProbedLimit: TypeAlias = tuple[str, str]  # kind (uplink, downlink or pipe), and the name of the node or of the pipe
ProbeFlow: TypeAlias = tuple[str, str]  # source node, target node


class RateProbe(FrozenRecord):
    """A rate probe: test datagrams that fill one or two links.

    It has senders, receivers, and the total rate that should arrive.
    """

    name: str
    limits: tuple[ProbedLimit, ...]
    max_rates_bps: dict[ProbeFlow, float]  # flow -> highest rate that it can reach
    rate_bps: float  # total rate that should arrive
    delay_s: float = 0.0  # longest delay of its paths
    fills_limit: bool = True  # False: the senders together are slower than the limit, and all of them send

    @property
    def duration_s(self) -> float:
        """Time during which the probe counts arriving packets, in seconds."""
        return min(MAX_PROBE_S, max(MIN_PROBE_S, MIN_PROBE_FRAMES * 8 * FRAME_BYTES / self.rate_bps))

    @property
    def flows(self) -> tuple[ProbeFlow, ...]:
        """Pairs of nodes of which the first sends to the second."""
        return tuple(self.max_rates_bps)

    def send_rate_bps(self, source: str, target: str) -> float:
        """Return the highest rate at which a node sends to another node in this probe, in bit/s.

        It is 1.5 times the rate that the flow can reach. The sender chooses its packet size by this rate. Packets that
        are too large arrive in bursts, and a burst at the start or end of the measurement raises the measured rate:
        four flows of 12.5 Mbit/s, sent with packets for 50 Mbit/s, measured 6 % too much.
        """
        return self.max_rates_bps[source, target] * OVERSEND_FACTOR

    @property
    def skip_reason(self) -> str:
        """Reason why this probe is not sent.

        It is empty when the probe is sent.
        """
        if not self.flows:
            return "the paths that could fill the link lose packets"
        if self.rate_bps > (MAX_PROBE_BPS if self.fills_limit else MAX_CONCURRENT_BPS):
            return (
                f"a probe of {self.rate_bps / 1e9:.3g} Gbit/s in wall-clock time would measure this host, not the link"
            )
        return ""

    @property
    def node_names(self) -> frozenset[str]:
        """Names of all nodes that send or receive in this probe."""
        return frozenset(name for flow in self.flows for name in flow)

    def targets_by_source(self) -> dict[str, tuple[str, ...]]:
        """Return the receiving nodes of each sending node, as a mapping."""
        targets_by_source: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in self.flows:
            targets_by_source[source].append(target)
        return {source: tuple(targets) for source, targets in targets_by_source.items()}

    def sources_by_target(self) -> dict[str, tuple[str, ...]]:
        """Return the sending nodes of each receiving node, as a mapping."""
        sources_by_target: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in self.flows:
            sources_by_target[target].append(source)
        return {target: tuple(sources) for target, sources in sources_by_target.items()}

    def describe_rate_mismatch(self, achieved_bps: float, time_dilation: float) -> str:
        """Return a message that compares the expected with the achieved rate of the probe.

        Rates are in Mbit per second of virtual time.
        """
        expected_mbps, achieved_mbps = self.rate_bps * time_dilation / 1e6, achieved_bps * time_dilation / 1e6
        error = achieved_mbps / expected_mbps - 1
        expected = f"declared {expected_mbps:.4g} Mbit/s"
        if not self.fills_limit:
            expected = f"its peers can send {expected_mbps:.4g} Mbit/s in total"
        return f"{expected}, but {achieved_mbps:.4g} Mbit/s arrived in the probe before the run ({error:+.1%})"


class MessageTimeProbe(FrozenRecord):
    """A test message from one node to another, and the time that the message should take."""

    source: str
    target: str
    size_bytes: int
    expected_s: float


class RateProbePlan(FrozenRecord):
    """Rate probes of a trial, and the rate limits that are not probed.

    A reason is given for each limit that is not probed.
    """

    probes: tuple[RateProbe, ...]
    skipped: tuple[tuple[str, str, str], ...] = ()  # kind and name of the limit, reason
