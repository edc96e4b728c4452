"""What does `make bench-transport` measure, and what must hold?

Gates are what prototypes reached on a host of two cores: shares of the bound, and times as fast as others in the same
run. A line without one only shows what is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from benchmarks.transport.jobs import What
from services.transport.planes import DATA_PLANES

BOUND, GLOO, RAW, TEXTBOOK, BARE = "bound", "gloo", "raw TCP", "textbook gRPC", "bare gRPC"
RIVALS: Mapping[What, tuple[str, ...]] = {"sum": (GLOO, BARE), "pair": (RAW, TEXTBOOK), "beside": ()}
KB, MB = 1_000, 1_000_000
UNSHAPED_BPS = 8e9  # about; decides only how many calls there are
# Up to here log2(n) exchanges of everything are faster than 2(n - 1) of a part. Where nothing is shaped, messages cost
# more than bytes: two and four ranks sum 1 MB in half to three quarters of a ring's time, and 4 MB in as much.
SMALL_BYTES, SMALL_UNSHAPED_BYTES = 64 << 10, 2 * MB

Least: TypeAlias = Mapping[str, float]  # of the bound, or as many times as fast as a rival
Gates: TypeAlias = Mapping[str, Least]  # by variant


@dataclass(frozen=True)
class Case:
    """One kind of link between so many ranks, and what they do with vectors of each size."""

    ranks: int
    sizes: Mapping[int, Gates]  # bytes
    rate_bps: float | None = None
    delay_s: float = 0.0  # one way
    what: What = "sum"

    def bound_s(self, size_bytes: int) -> float | None:
        """The least that a sum can take: every uplink carries 2(n-1)/n of the vector at the raw rate."""
        if self.rate_bps is None or self.what != "sum":
            return None
        return 8 * 2 * (self.ranks - 1) / self.ranks * size_bytes / self.rate_bps

    @property
    def rivals(self) -> tuple[str, ...]:
        """Who else does it; what gRPC could reach at most is a question where nothing else is in its way."""
        return tuple(each for each in RIVALS[self.what] if each != BARE or self.rate_bps is None)

    @property
    def small_bytes(self) -> int:
        """Up to here vectors are summed by recursive doubling, longer ones by a ring."""
        return SMALL_BYTES if self.rate_bps else SMALL_UNSHAPED_BYTES

    def expected_s(self, size_bytes: int) -> float:
        """About what a call takes."""
        crossing = 2 * (self.ranks - 1) if self.what == "sum" else 1  # vectors, over all links together
        rate_bps = self.ranks * self.rate_bps if self.rate_bps and self.what == "sum" else self.rate_bps
        return 8 * crossing * size_bytes / (rate_bps or UNSHAPED_BPS)


@dataclass(frozen=True)
class Reached:
    """What one variant has reached, beside what it must."""

    least: Least = field(default_factory=dict)
    found: Least = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """Whether it holds; nothing where nothing is asked, and `not judged` where a rival is not there."""
        if any(self.found[by] < least for by, least in self.least.items() if by in self.found):
            return "NOT OK"
        if self.least.keys() - self.found.keys():
            return "not judged"
        return "ok" if self.least else ""


def told(values: Least, sign: str = "") -> str:
    """`0.951 of the bound, 1.02 × gloo`."""
    parts = (f"{sign}{value:.3g} {'of the bound' if by == BOUND else f'× {by}'}" for by, value in values.items())
    return ", ".join(parts) or "–"


def _planes(**least: float) -> Gates:
    return dict.fromkeys(DATA_PLANES, least)


FULL = _planes(bound=0.94, gloo=0.99)
ROWS: Mapping[str, tuple[Case, ...]] = {
    "unshaped": (
        Case(
            2,
            {
                4096: _planes(gloo=2.5),
                MB: {"grpc": {GLOO: 1.0}},
                10 * MB: {},
                100 * MB: {"grpc": {GLOO: 0.75}, "tcp": {GLOO: 1.5}},
            },
        ),
        Case(
            4,
            {
                4096: _planes(gloo=8),
                MB: {"grpc": {GLOO: 2.0}},
                10 * MB: {},
                100 * MB: {"grpc": {GLOO: 0.6}, "tcp": {GLOO: 1.5}},
            },
        ),
    ),
    "1gbit": (
        Case(2, {4096: {}, MB: FULL, 10 * MB: FULL, 100 * MB: FULL}, 1e9),
        Case(4, {4096: {}, MB: FULL, 10 * MB: FULL, 100 * MB: FULL}, 1e9),
        Case(8, {MB: {}, 10 * MB: _planes(bound=0.88), 100 * MB: _planes(bound=0.93)}, 1e9),
    ),
    "100mbit": (
        Case(2, {MB: FULL, 10 * MB: FULL}, 1e8),
        Case(4, {MB: FULL, 10 * MB: FULL}, 1e8),
        Case(8, {MB: _planes(bound=0.94), 10 * MB: _planes(bound=0.94)}, 1e8),
    ),
    "delayed": (Case(4, {4096: {}, 10 * MB: _planes(gloo=1.4)}, 1e9, 0.005),),
    "pair": (Case(2, {100 * MB: {"grpc": {RAW: 0.5, TEXTBOOK: 10}}}, what="pair"),),
    "beside": (Case(2, {10 * MB: {}}, 1e9, what="beside"),),
}
