"""`ensayo calibrate`: measure what this host adds to a message, which rates it shapes, and how much it carries."""

from collections.abc import Callable
from datetime import UTC, datetime

from compose.calibration.capacity import Capacity, fingerprint
from compose.calibration.node_pair import Pair, pair
from compose.engines.base import Engine, Preparing
from services.cluster.fluid_link import goodput
from services.scenario.scenario import TransportName
from services.schema.errors import HostError

RATES_BPS = (1e9, 2.5e9, 5e9, 10e9)  # of a link up and down, tried in this order until one fails
TRIES = 2  # what else goes on here may disturb one
ERROR = 0.03  # of the goodput that a rate should give

Told = Callable[[str], None]


def calibrate(engine: Engine, transport: TransportName, watch: Preparing, tell: Told) -> Capacity:
    """Measure; takes less than a minute once images are built.

    Args:
        engine: docker or local; it can run here.
        transport: that carries what is measured.
        watch: is told what is prepared.
        tell: is told each finding, a line at a time.

    Raises:
        HostError: the engine can't measure here, or this host shapes not even the smallest rate.
    """
    engine.prepare(watch)
    nodes = pair(engine, transport)
    free = nodes.measure(None)
    tell(f"message      {1e3 * free.round_trip_s / 2:.3f} ms, and {1e3 * free.message_cpu_s:.3f} ms of CPU")
    total_bps = max(free.rate_bps, free.both_bps or 0.0)
    tell(f"all links    {total_bps / 1e9:.1f} Gbit/s, and {1e9 * free.byte_cpu_s:.2f} s of CPU per GB")
    tell(f"adding       {1e9 * free.sum_s:.3f} s per GB")
    return Capacity(
        engine=engine.name,
        transport=transport,
        fingerprint=fingerprint(engine),
        calibrated=datetime.now(UTC).isoformat(timespec="seconds"),
        alpha_s=free.round_trip_s / 2,
        shaped_bps=_largest(nodes, total_bps, tell),
        total_bps=total_bps,
        message_cpu_s=free.message_cpu_s,
        byte_cpu_s=free.byte_cpu_s,
        sum_s=free.sum_s,
    )


def _largest(nodes: Pair, total_bps: float, tell: Told) -> float:
    """The largest rate that a link keeps."""
    kept = 0.0
    for rate_bps in (rate for rate in RATES_BPS if goodput(rate) * 8 <= total_bps):
        shares = [_share(nodes, rate_bps, tell)]
        while abs(shares[-1] - 1) > ERROR and len(shares) < TRIES:
            shares.append(_share(nodes, rate_bps, tell))
        if abs(shares[-1] - 1) > ERROR:
            break
        kept = rate_bps
    if not kept:
        raise HostError(f"no link of {RATES_BPS[0] / 1e9:g} Gbit/s keeps its rate here; is this host busy?")
    return kept


def _share(nodes: Pair, rate_bps: float, tell: Told) -> float:
    """Achieved goodput over what the rate should give."""
    share = nodes.measure(rate_bps).rate_bps / (8 * goodput(rate_bps))
    tell(f"up and down  {rate_bps / 1e9:g} Gbit/s: {share:.1%} of its goodput")
    return share
