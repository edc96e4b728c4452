"""Two trees at once (Sanders, Speck & Träff, Parallel Computing 35, 2009): half of the vector along each, in pieces."""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self, TypeAlias

from pydantic import Field

from services.collectives.base import Collective, Does, Round, Schedule, Site, Transfer
from services.schema.units import Bytes

Level: TypeAlias = tuple[int, int, int]  # depth of the child, child, parent


class DoubleTree(Collective):
    """Binary trees over the ranks in their order; who passes on in one is a leaf of the other, so all links are busy.

    Pieces of both halves follow each other: about 2S per link however many ranks there are, and few hops.
    """

    kind: Literal["double_tree"] = "double_tree"
    closed_form: ClassVar[str] = "2⌊lg n⌋α + (2S + 4(⌊lg n⌋-2)s)β, s: a piece; n > 3"

    segment: Bytes = Field(
        Bytes("32KiB"), description="the largest piece; larger ones fill the trees later and may overrun ports"
    )
    round_trip: Bytes | None = Field(
        None, description="what a link carries while a piece goes and comes back; the network's when absent"
    )

    def settled(self, site: Site) -> Self:
        if self.round_trip is not None or not site.round_trip_bytes:
            return self
        return self.model_copy(update={"round_trip": Bytes(f"{site.round_trip_bytes}B")})

    def schedule(self, ranks: int) -> Schedule:
        trees = [sorted(_tree(ranks, half)) for half in (0, 1)]
        depths = range(1, 1 + max((depth for tree in trees for depth, _, _ in tree), default=0))
        up = (_round(trees, depth, "adds") for depth in reversed(depths))
        down = (_round(trees, depth, "copies") for depth in depths)
        rounds = (*up, *down)
        return Schedule(
            parts=2,
            rounds=rounds,
            pipelined=True,
            segment_bytes=int(self.segment),
            sums_first=True,
            # All that are on their way up and down, and as many that hosts hold in between.
            ahead=4 * len(depths) or None,
            ahead_bytes=len(depths) * int(self.round_trip or 0),
        )

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """Who passes on sends 2S: half to its parent, two halves to its children, half in the other tree.

        From a depth of three on, the trees must fill first: measured on the virtual fabric, four pieces per level.
        """
        filled = _busiest(ranks) * size_bytes + _filling(ranks) * min(self.segment, size_bytes / 2)
        return 2 * _depth(ranks) * alpha_s + filled * beta_s

    def hidden_s(self, ranks: int, size_bytes: float, piece_bytes: int, moving_s: float, waits_s: float) -> float:
        """Links are idle while the trees fill; or, over long ways, always but for half of what they carry.

        Measured on the virtual fabric for 2 to 16 ranks: times are 0.96 to 1.08 of this, and 1.18 for three.
        """
        if ranks == 1:
            return 0.0
        levels, piece = 2 * _depth(ranks), min(piece_bytes / size_bytes, 0.5)
        carried = (_busiest(ranks) / 2 + levels * piece) / (_busiest(ranks) + _filling(ranks) * piece)
        return max(0.0, min((1 - max(1, levels - 3) / levels) * waits_s, (1 - carried) * moving_s))


def _depth(ranks: int) -> int:
    """Levels of a tree."""
    return ranks.bit_length() - 1


def _busiest(ranks: int) -> float:
    """Vectors that the busiest rank sends; two and three ranks have leaves and roots alone."""
    return min(ranks, 4) / 2 if ranks > 1 else 0.0


def _filling(ranks: int) -> int:
    """Pieces that pass before trees are full."""
    return 4 * max(0, _depth(ranks) - 2)


def _tree(ranks: int, half: int) -> Iterator[Level]:
    """The tree of one half. Inner ranks of the first are those with odd numbers; of the second, the others.

    Numbers are mirrored where n is even and shifted by one where it is odd.
    """
    for depth, child, parent in _in_order(1, ranks, depth=0):
        if half == 0:
            yield depth, child - 1, parent - 1
        elif ranks % 2:
            yield depth, child % ranks, parent % ranks
        else:
            yield depth, ranks - child, ranks - parent


def _in_order(first: int, last: int, depth: int) -> Iterator[Level]:
    """Edges of the binary tree over the numbers from an odd `first` to `last`, in which odd numbers are leaves."""
    root = _root(first, last)
    for low, high in ((first, root - 1), (root + 1, last)):
        if low <= high:
            yield depth + 1, _root(low, high), root
            yield from _in_order(low, high, depth + 1)


def _root(first: int, last: int) -> int:
    """The number above a range: so far from its begin as the largest power of two that fits."""
    return first - 1 + (1 << ((last - first + 1).bit_length() - 1))


def _round(trees: list[list[Level]], depth: int, does: Does) -> Round:
    """All that moves between one depth and the one above it, in both trees."""
    return tuple(
        Transfer(*((child, parent) if does == "adds" else (parent, child)), half, half + 1, does)
        for half, tree in enumerate(trees)
        for at, child, parent in tree
        if at == depth
    )
