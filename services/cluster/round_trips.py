"""How long do echoes between two nodes take, and how far off may they be? One law for the probe and for its judge."""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, median

from services.cluster.network_model import Network
from services.schema.component import Record

ECHOES = 6  # in a try
SHARE = 0.05  # of a long round trip
SPREADS = 4.0  # standard errors that a mean of few echoes may be off


class RoundTrip(Record):
    """What echoes between two nodes should take; virtual seconds."""

    mean_s: float
    deviation_s: float = 0.0  # of one echo

    def found(self, echoes_s: Sequence[float]) -> float:
        """The round trip that the echoes of a try show: their mean where it varies, else their median; inf of none."""
        if not echoes_s:
            return inf
        return fmean(echoes_s) if self.deviation_s else median(echoes_s)

    def tolerance_s(self, wall_s: float, dilation: float) -> float:
        """How far off a try may be: timers and cores by so much of the host's time, paths by a share, chance by law."""
        return max(wall_s / dilation, SHARE * self.mean_s) + SPREADS * self.deviation_s / sqrt(ECHOES)

    def complaint(self, source: str, target: str, found_s: float) -> str:
        """What is wrong."""
        told = "no echo came back" if found_s == inf else f"echoes took {found_s * 1e3:.2f} ms"
        return f"{source} to {target} and back: declared {self.mean_s * 1e3:.2f} ms, {told}"


def round_trip(network: Network, one: str, other: str) -> RoundTrip:
    """What a network declares between two nodes."""
    ways = network.path(one, other), network.path(other, one)
    deviation_s = sqrt(sum(jitter.deviation**2 for way in ways for jitter in way.jitters))
    return RoundTrip(mean_s=sum(way.delay_s for way in ways), deviation_s=deviation_s)
