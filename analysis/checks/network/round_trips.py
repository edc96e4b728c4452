"""Are nodes as far apart as declared?"""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.checks.evidence import shaped_by_kernel
from analysis.checks.verdict import LINKS, Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable
from services.cluster.network import round_trip


class Echoed(NamedTuple):
    """From a node to a peer and back; virtual seconds."""

    node: str
    peer: str
    declared_s: float
    measured_s: float
    tolerance_s: float

    @property
    def error_s(self) -> float:
        """Too long when positive."""
        return self.measured_s - self.declared_s


def round_trips(trial: TrialTable) -> Verdict:
    """Compares the probe's round trips with the plan's paths: all that are declared, and some where there is none.

    Invalid when one is off by more than the threshold, or 5 % where that is more; degraded when a node with a declared
    delay measured none. A round trip is the median of a few echoes, or their mean where the delay varies.
    """
    if not shaped_by_kernel(trial):
        return valid("our own code delays messages: nothing to probe")
    found = list(measured(trial))
    worst = max(found, key=lambda trip: abs(trip.error_s) - trip.tolerance_s, default=None)
    if worst and abs(worst.error_s) > worst.tolerance_s:
        return invalid(
            f"{worst.node} to {worst.peer} and back takes {1e3 * worst.measured_s:.3g} ms where "
            f"{1e3 * worst.declared_s:.3g} are declared (limit {1e3 * worst.tolerance_s:.2g} ms off)",
            LINKS,
        )
    far = {node for path in trial.plan.network.paths if path.delay_s for node in (path.source, path.target)}
    if unknown := sorted(far - {end for trip in found for end in (trip.node, trip.peer)}):
        return degraded(f"no round trip was measured of {', '.join(unknown)}, where a delay is declared")
    if worst is None:
        return valid("no delay is declared, and no round trip was measured")
    largest = max(abs(trip.error_s) for trip in found)
    return valid(f"{len(found)} round trips within {1e3 * largest:.2g} ms of what is declared")


def measured(trial: TrialTable) -> Iterator[Echoed]:
    """Every round trip that was probed."""
    plan, wall_s = trial.plan, float(trial.plan.fidelity.round_trip)
    for node, shaped in (trial.status.get("shaping") or {}).items():
        for peer, found in (shaped.get("round_trip_s") or {}).items():
            declared = round_trip(plan.network, node, peer)
            tolerance_s = declared.tolerance_s(wall_s, plan.dilation)
            yield Echoed(node, peer, declared.mean_s, float(found["achieved"]), tolerance_s)
