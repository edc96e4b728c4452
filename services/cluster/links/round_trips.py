"""Expected round-trip time between two nodes, and tolerance for measured round-trip times.

The probe before a trial and the check after it use the same expectation and tolerance.
"""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, median

from services.cluster.network_model import Network
from services.schema.component import FrozenRecord

ECHOES_PER_TRY = 6
TOLERATED_RELATIVE_ERROR = 0.05  # relative error of a long round trip
TOLERATED_STANDARD_ERRORS = 4.0  # of the mean of the echoes, where delays vary


class ExpectedRoundTripTime(FrozenRecord):
    """Planned mean and deviation of the round-trip time between two nodes, in virtual seconds."""

    mean_s: float
    deviation_s: float = 0.0  # standard deviation of one echo

    def estimate_round_trip_s(self, echo_times_s: Sequence[float]) -> float:
        """Return the round-trip time in seconds, estimated from measured echo times.

        The result is infinite if no echo came back. The estimate is the mean of the echo times where delays vary, and
        their median otherwise.
        """
        if not echo_times_s:
            return inf
        return fmean(echo_times_s) if self.deviation_s else median(echo_times_s)

    def tolerance_s(self, wall_tolerance_s: float, time_dilation: float) -> float:
        """Return the allowed difference between estimated and expected round-trip time, in virtual seconds.

        The tolerance is `wall_tolerance_s` of the host's time, for its timers and cores, or a share of the round trip
        if that is more; and where delays vary, some standard errors on top.
        """
        random_error_s = TOLERATED_STANDARD_ERRORS * self.deviation_s / sqrt(ECHOES_PER_TRY)
        return max(wall_tolerance_s / time_dilation, TOLERATED_RELATIVE_ERROR * self.mean_s) + random_error_s

    def mismatch_message(self, source: str, target: str, round_trip_s: float) -> str:
        """Return the error message for a round-trip time that differs too much from the declared round-trip time."""
        measured = "no echo came back" if round_trip_s == inf else f"echoes took {round_trip_s * 1e3:.2f} ms"
        return f"round trip between {source} and {target}: declared {self.mean_s * 1e3:.2f} ms, {measured}"


def expected_round_trip_time(network: Network, node_name: str, peer_name: str) -> ExpectedRoundTripTime:
    """Return the round-trip time between two nodes that follows from the declared network."""
    paths = network.path_between(node_name, peer_name), network.path_between(peer_name, node_name)
    deviation_s = sqrt(sum(jitter.deviation**2 for path in paths for jitter in path.jitters))
    return ExpectedRoundTripTime(mean_s=sum(path.delay_s for path in paths), deviation_s=deviation_s)
