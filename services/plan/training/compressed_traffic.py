"""Traffic of a compressed all-reduce, compared with that of a ring without compression."""

from services.strategies import AllReduce, SinglePhaseStrategy
from services.strategies.base import IDENTITY_COMPRESSOR


def compressed_traffic_ratio(
    phase_strategy: SinglePhaseStrategy, worker_count: int, parameter_count: int, dtype: str
) -> float | None:
    """Return the bytes that all workers send, divided by those of a ring all-reduce without compression.

    An uncompressed ring sends 2(n-1)S bytes in all. Gathered payloads of P bytes are sent n(n-1) times, so they are
    fewer bytes only if P is less than 2/n of S: with 4 bytes per value and index, if a share of less than 1/n of the
    entries is sent; with a format that is c times shorter, if n is less than 2c.

    Return None without a compressor, without a collective, or if a single worker sends nothing.
    """
    exchange = phase_strategy.describe_worker_exchange()
    has_collective = bool(phase_strategy.collective_schedule(worker_count).rounds)
    if exchange.compressor == IDENTITY_COMPRESSOR or not has_collective:
        return None
    sent = phase_strategy.sent_bytes_per_step(worker_count, parameter_count, dtype).workers
    ring = AllReduce().sent_bytes_per_step(worker_count, parameter_count, dtype).workers
    return sum(sent) * exchange.exchange_period / exchange.exchanges_per_period / sum(ring)
