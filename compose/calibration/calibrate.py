"""Measurement behind `ensayo calibrate`: what a message costs on this host, and which link rates the host carries."""

from collections.abc import Callable
from datetime import UTC, datetime

from compose.calibration.capacity import HostCapacity, host_fingerprint
from compose.calibration.node_pair import CalibrationNodePair
from compose.calibration.node_pair_choice import create_calibration_nodes
from compose.engines.base import EnginePreparationObserver, TrialEngine
from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.scenario.run_settings import TransportName
from services.schema.errors import HostError

LINK_RATES_BPS = (1e9, 2.5e9, 5e9, 10e9)  # of a link's uplink and downlink, tried in this order until one fails
TRIES_PER_RATE = 2  # other processes of this host may disturb one try
MAX_GOODPUT_ERROR = 0.03  # relative to the goodput that a rate should give

LinePrinter = Callable[[str], None]


def measure_capacity(
    engine: TrialEngine,
    transport: TransportName,
    engine_observer: EnginePreparationObserver,
    print_result: LinePrinter,
) -> HostCapacity:
    """Measure which link rates this host can carry and what a message costs.

    The measurement takes less than a minute once the container images are built.

    Args:
        engine: docker or local, able to run on this host.
        transport: carries the measured messages.
        engine_observer: receives what the engine prepares.
        print_result: receives one line per result.

    Raises:
        HostError: the engine can't measure on this host, or no link keeps even the smallest rate.
    """
    engine.prepare(engine_observer)
    pair = create_calibration_nodes(engine, transport)
    unshaped = pair.measure_message_timing(None)
    one_way_ms, cpu_ms = 1e3 * unshaped.round_trip_s / 2, 1e3 * unshaped.message_cpu_s
    print_result(f"message      {one_way_ms:.3f} ms one way, {cpu_ms:.3f} ms of CPU time")
    total_bps = max(unshaped.rate_bps, unshaped.both_bps or 0.0)
    print_result(f"all links    {total_bps / 1e9:.1f} Gbit/s, {1e9 * unshaped.byte_cpu_s:.2f} s of CPU time per GB")
    print_result(f"vector sum   {1e9 * unshaped.sum_s:.3f} s of CPU time per GB")
    return HostCapacity(
        engine=engine.name,
        transport=transport,
        fingerprint=host_fingerprint(engine),
        calibrated=datetime.now(UTC).isoformat(timespec="seconds"),
        alpha_s=unshaped.round_trip_s / 2,
        shaped_bps=_largest_shaped_rate_bps(pair, total_bps, print_result),
        total_bps=total_bps,
        message_cpu_s=unshaped.message_cpu_s,
        byte_cpu_s=unshaped.byte_cpu_s,
        sum_s=unshaped.sum_s,
    )


def _largest_shaped_rate_bps(node_pair: CalibrationNodePair, unshaped_bps: float, print_line: LinePrinter) -> float:
    """Return the largest rate, in bit/s, at which a shaped link reaches the goodput expected for its rate.

    Raises:
        HostError: the smallest rate fails.
    """
    largest_bps = 0.0
    for rate_bps in (rate for rate in LINK_RATES_BPS if to_goodput_bytes_per_s(rate) * 8 <= unshaped_bps):
        ratios = [_measure_goodput_ratio(node_pair, rate_bps, print_line)]
        while abs(ratios[-1] - 1) > MAX_GOODPUT_ERROR and len(ratios) < TRIES_PER_RATE:
            ratios.append(_measure_goodput_ratio(node_pair, rate_bps, print_line))
        if abs(ratios[-1] - 1) > MAX_GOODPUT_ERROR:
            break
        largest_bps = rate_bps
    if not largest_bps:
        raise HostError(
            f"a link of {LINK_RATES_BPS[0] / 1e9:g} Gbit/s does not keep its rate within {MAX_GOODPUT_ERROR:.0%} on "
            "this host; stop other programs and run `ensayo calibrate` again"
        )
    return largest_bps


def _measure_goodput_ratio(node_pair: CalibrationNodePair, link_rate_bps: float, print_line: LinePrinter) -> float:
    """Return the measured goodput of a shaped link, divided by the goodput that its rate should give."""
    ratio = node_pair.measure_message_timing(link_rate_bps).rate_bps / (8 * to_goodput_bytes_per_s(link_rate_bps))
    print_line(f"shaped link  {link_rate_bps / 1e9:g} Gbit/s: {ratio:.1%} of the goodput that this rate should give")
    return ratio
