"""Check that round trips between nodes take as long as the declared delays."""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.checks.engine_kind import are_links_shaped_by_kernel
from analysis.checks.verdict import (
    WRONG_LINKS_REMEDY,
    CheckVerdict,
    VerdictLevel,
    degraded_verdict,
    disturbed_verdict,
    valid_verdict,
)
from analysis.reading.run_table import TrialLogTables
from services.cluster.network import expected_round_trip_time


class MeasuredRoundTrip(NamedTuple):
    """Declared and measured time of a message from one node to another and back, in seconds of virtual time."""

    source: str
    target: str
    declared_s: float
    measured_s: float
    tolerance_s: float

    @property
    def deviation_from_declared_s(self) -> float:
        """Measured minus declared time of the round trip, in virtual seconds."""
        return self.measured_s - self.declared_s


def check_round_trips(trial: TrialLogTables) -> CheckVerdict:
    """Compare measured round trip times between nodes with the declared delays.

    Measured are all paths with a declared delay, and some paths without.

    Invalid if a round trip is off by more than the threshold or 5 %, whichever is more. Degraded if a node with a
    declared delay has no measured round trip. A round trip is the median of a few echoes, or their mean if the delay
    varies.
    """
    if not are_links_shaped_by_kernel(trial):
        return valid_verdict("Ensayo's own code delays messages, so round trips were not probed")
    trips = list(measured_round_trips(trial))
    worst = max(trips, key=lambda trip: abs(trip.deviation_from_declared_s) - trip.tolerance_s, default=None)
    if worst and abs(worst.deviation_from_declared_s) > worst.tolerance_s:
        return disturbed_verdict(
            VerdictLevel.INVALID,
            f"a round trip from {worst.source} to {worst.target} took {1e3 * worst.measured_s:.3g} ms; declared are "
            f"{1e3 * worst.declared_s:.3g} ms (limit {1e3 * worst.tolerance_s:.2g} ms off)",
            remedy=WRONG_LINKS_REMEDY,
        )
    delayed = {name for path in trial.plan.network.paths if path.delay_s for name in (path.source, path.target)}
    if unknown := sorted(delayed - {name for trip in trips for name in (trip.source, trip.target)}):
        return degraded_verdict(f"a delay is declared but no round trip was measured: {', '.join(unknown)}")
    if worst is None:
        return valid_verdict("no delay is declared, and no round trip was measured")
    largest_s = max(abs(trip.deviation_from_declared_s) for trip in trips)
    return valid_verdict(f"{len(trips)} round trips were within {1e3 * largest_s:.2g} ms of their declared time")


def measured_round_trips(trial: TrialLogTables) -> Iterator[MeasuredRoundTrip]:
    """Yield the declared and the measured time of every round trip between two nodes that was probed."""
    plan, wall_tolerance_s = trial.plan, float(trial.plan.fidelity.round_trip)
    for node_name, link_shaping in (trial.status.get("shaping") or {}).items():
        for peer, probe in (link_shaping.get("round_trip_s") or {}).items():
            declared = expected_round_trip_time(plan.network, node_name, peer)
            tolerance_s = declared.tolerance_s(wall_tolerance_s, plan.dilation)
            yield MeasuredRoundTrip(node_name, peer, declared.mean_s, float(probe["achieved"]), tolerance_s)
