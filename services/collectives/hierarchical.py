"""Two levels (Horovod's hierarchical all-reduce): inside every rack, between racks, inside every rack again."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from services.collectives.base import Round, Schedule, Transfer
from services.collectives.grouped import Grouped, Groups
from services.collectives.ring import rounds_of_ring


class Hierarchical(Grouped):
    """Each rack sums a slice at each of its ranks; the owners of a slice form a ring; each rack spreads the slices.

    A rack sends 2(G-1)/G of the vector to others, whatever its size. Inside, slices go straight to their owners, one
    after the other, which waits once where a ring would wait g-1 times. The smallest rack says how many slices there
    are; ranks beyond that own none.
    """

    kind: Literal["hierarchical"] = "hierarchical"
    formula: ClassVar[str] = "2(α + (g-1)S/l·β) + 2(G-1)(α + S/(lG)·β), G groups of l to g ranks"

    def schedule(self, ranks: int) -> Schedule:
        groups = self.among(ranks)
        slices = min(map(len, groups))
        inside = list(_inside(groups, slices))
        rings = [list(rounds_of_ring([group[k] for group in groups], k * len(groups))) for k in range(slices)]
        between = (sum(hops, ()) for hops in zip(*rings, strict=True))
        back = (tuple(_returned(transfer) for transfer in each) for each in inside)
        return Schedule(parts=slices * len(groups), rounds=(*inside, *between, *back))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """The largest rack takes longest inside; between racks, slices move at once over links of their own."""
        sizes = [len(group) for group in self.among(ranks)]
        slice_s = size_bytes / min(sizes) * beta_s
        inside_s = 2 * ((max(sizes) > 1) * alpha_s + (max(sizes) - 1) * slice_s)
        return inside_s + 2 * (len(sizes) - 1) * (alpha_s + slice_s / len(sizes))


def _inside(groups: Groups, slices: int) -> Iterator[Round]:
    """In round t everybody sends to the t-th rank behind it, so that nobody hears from two at once."""
    for turn in range(1, max(map(len, groups))):
        yield tuple(transfer for group in groups for transfer in _turn(group, turn, slices, len(groups)))


def _turn(group: Sequence[int], turn: int, slices: int, parts: int) -> Iterator[Transfer]:
    """One round inside a group; slice k, `parts` chunks long, belongs to the k-th rank."""
    if turn >= len(group):
        return
    for place, rank in enumerate(group):
        owner = (place + turn) % len(group)
        if owner < slices:
            yield Transfer(rank, group[owner], owner * parts, (owner + 1) * parts, "adds")


def _returned(transfer: Transfer) -> Transfer:
    """The total of what `transfer` has summed, the other way."""
    return transfer._replace(source=transfer.target, target=transfer.source, does="copies")
