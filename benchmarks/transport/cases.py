"""Cases of the transport benchmark and the speed ratios that they must reach (gates).

Gates are a share of the theoretical bound, or a speed relative to rivals in the same run. On unshaped links, `grpc` is
compared with bare `grpc.aio`, since the library limits its speed; `tcp` is compared with gloo and with raw TCP. Cases
without gates are only shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from benchmarks.transport.jobs import RankOperation
from services.transport.data_planes import DATA_PLANES

BOUND, GLOO, RAW, TEXTBOOK, BARE = "bound", "gloo", "raw TCP", "textbook gRPC", "bare gRPC"
RIVALS_BY_OPERATION: Mapping[RankOperation, tuple[str, ...]] = {
    "sum": (GLOO, BARE),
    "pair": (RAW, TEXTBOOK),
    "beside": (),
}
KB, MB = 1_000, 1_000_000
ASSUMED_UNSHAPED_BPS = 8e9  # rough estimate, which only decides the number of calls
# Up to these sizes log2(n) exchanges of the whole vector are faster than 2(n - 1) exchanges of a part of it. On
# unshaped links, messages cost more than bytes: two and four ranks sum 1 MB in 1/2 to 3/4 of the time of a ring, and
# 4 MB in the same time.
MAX_DOUBLING_BYTES, MAX_UNSHAPED_DOUBLING_BYTES = 64 << 10, 2 * MB

SpeedRatios: TypeAlias = Mapping[str, float]  # bound or rival -> share of the bound, or speed relative to the rival
VariantGates: TypeAlias = Mapping[str, SpeedRatios]  # variant -> required ratios


@dataclass(frozen=True)
class TransportCase:
    """Operation on vectors of several sizes among ranks behind one kind of link, with the gates of each size."""

    rank_count: int
    gates_by_size: Mapping[int, VariantGates]  # vector bytes -> gates
    rate_bps: float | None = None
    delay_s: float = 0.0  # one way
    operation: RankOperation = "sum"

    def lower_bound_s(self, size_bytes: int) -> float | None:
        """Return the least seconds of a sum: every uplink carries 2(n-1)/n of the vector at the raw rate.

        None for other operations and for links without a rate.
        """
        if self.rate_bps is None or self.operation != "sum":
            return None
        return 8 * 2 * (self.rank_count - 1) / self.rank_count * size_bytes / self.rate_bps

    @property
    def rivals(self) -> tuple[str, ...]:
        """Other implementations of the operation. Bare gRPC is measured only where no link limits it."""
        rivals = RIVALS_BY_OPERATION[self.operation]
        return tuple(rival for rival in rivals if rival != BARE or self.rate_bps is None)

    @property
    def max_doubling_bytes(self) -> int:
        """Largest vector in bytes that is summed by recursive doubling. Longer vectors are summed by a ring."""
        return MAX_DOUBLING_BYTES if self.rate_bps else MAX_UNSHAPED_DOUBLING_BYTES

    def expected_call_s(self, size_bytes: int) -> float:
        """Return the approximate seconds of one call."""
        sent_vectors = 2 * (self.rank_count - 1) if self.operation == "sum" else 1  # over all links together
        rate_bps = self.rank_count * self.rate_bps if self.rate_bps and self.operation == "sum" else self.rate_bps
        return 8 * sent_vectors * size_bytes / (rate_bps or ASSUMED_UNSHAPED_BPS)


@dataclass(frozen=True)
class VariantComparison:
    """Measured speed ratios of one variant, and the ratios that it must reach."""

    required_ratios: SpeedRatios = field(default_factory=dict)
    measured_ratios: SpeedRatios = field(default_factory=dict)

    @property
    def gate_mark(self) -> str:
        """`ok` or `NOT OK`; `not judged` if a rival was not measured, and empty if there are no gates."""
        measured = self.measured_ratios
        if any(measured[name] < least for name, least in self.required_ratios.items() if name in measured):
            return "NOT OK"
        if self.required_ratios.keys() - self.measured_ratios.keys():
            return "not judged"
        return "ok" if self.required_ratios else ""


def format_ratios(ratios: SpeedRatios, prefix: str = "") -> str:
    """Return speed ratios as text: `0.951 of the bound, 1.02 × gloo`."""
    parts = (
        f"{prefix}{ratio:.3g} {'of the bound' if name == BOUND else f'× {name}'}" for name, ratio in ratios.items()
    )
    return ", ".join(parts) or "–"


def _gates_of_all_planes(**required_ratios: float) -> VariantGates:
    return dict.fromkeys(DATA_PLANES, required_ratios)


FULL_RATE_GATES = _gates_of_all_planes(bound=0.94, gloo=0.99)
CASES_BY_ROW: Mapping[str, tuple[TransportCase, ...]] = {
    "unshaped": (
        TransportCase(
            2,
            {
                4096: {"grpc": {BARE: 0.8}, "tcp": {GLOO: 4}},
                MB: {"grpc": {BARE: 0.9}, "tcp": {GLOO: 2}},
                10 * MB: {"grpc": {BARE: 0.9}},
                100 * MB: {"grpc": {BARE: 0.9}, "tcp": {GLOO: 1.2}},
            },
        ),
        TransportCase(
            4,
            {
                4096: {"grpc": {BARE: 0.8}, "tcp": {GLOO: 8}},
                MB: {"grpc": {BARE: 0.9}, "tcp": {GLOO: 2}},
                10 * MB: {"grpc": {BARE: 0.9}},
                100 * MB: {"grpc": {BARE: 0.9}, "tcp": {GLOO: 1}},
            },
        ),
    ),
    "1gbit": (
        TransportCase(2, {4096: {}, MB: FULL_RATE_GATES, 10 * MB: FULL_RATE_GATES, 100 * MB: FULL_RATE_GATES}, 1e9),
        TransportCase(4, {4096: {}, MB: FULL_RATE_GATES, 10 * MB: FULL_RATE_GATES, 100 * MB: FULL_RATE_GATES}, 1e9),
        TransportCase(
            8, {MB: {}, 10 * MB: _gates_of_all_planes(bound=0.88), 100 * MB: _gates_of_all_planes(bound=0.93)}, 1e9
        ),
    ),
    "100mbit": (
        TransportCase(2, {MB: FULL_RATE_GATES, 10 * MB: FULL_RATE_GATES}, 1e8),
        TransportCase(4, {MB: FULL_RATE_GATES, 10 * MB: FULL_RATE_GATES}, 1e8),
        TransportCase(8, {MB: _gates_of_all_planes(bound=0.94), 10 * MB: _gates_of_all_planes(bound=0.94)}, 1e8),
    ),
    "delayed": (TransportCase(4, {4096: {}, 10 * MB: _gates_of_all_planes(gloo=1.4)}, 1e9, 0.005),),
    "pair": (TransportCase(2, {100 * MB: {"grpc": {TEXTBOOK: 10}, "tcp": {RAW: 0.8}}}, operation="pair"),),
    "beside": (TransportCase(2, {10 * MB: {}}, 1e9, operation="beside"),),
}
