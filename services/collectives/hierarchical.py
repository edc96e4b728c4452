"""Two levels (Horovod's hierarchical all-reduce): inside every rack, between racks, inside every rack again."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from services.collectives.base import Schedule, Transfer
from services.collectives.grouped import Grouped
from services.collectives.ring import rounds_of_ring


class Hierarchical(Grouped):
    """Each rack sums a slice at each of its ranks; the owners of a slice form a ring; each rack spreads the slices.

    A rack sends 2(G-1)/G of the vector to others, whatever its size. Inside, slices go straight to their owners, which
    waits once where a ring would wait g-1 times. The smallest rack says how many slices there are; ranks beyond that
    own none.
    """

    kind: Literal["hierarchical"] = "hierarchical"
    closed_form: ClassVar[str] = "2(2α + (g-1)S/l·β) + 2(G-1)(α + S/(lG)·β), G groups of l to g ranks"
    eager_form: ClassVar[str] = "2(α + (g-1)S/l·β) + 2(G-1)(α + S/(lG)·β), G groups of l to g ranks"

    def schedule(self, ranks: int) -> Schedule:
        groups = self.among(ranks)
        slices = min(map(len, groups))
        inside = tuple(transfer for group in groups for transfer in _inside(group, slices, len(groups)))
        rings = [list(rounds_of_ring([group[k] for group in groups], k * len(groups))) for k in range(slices)]
        between = (sum(hops, ()) for hops in zip(*rings, strict=True))
        rounds = (inside, *between, tuple(map(_returned, inside)))
        return Schedule(parts=slices * len(groups), rounds=tuple(self.in_turn([each for each in rounds if each])))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """The largest rack takes longest inside; between racks, slices move at once over links of their own.

        A token says when a link is free for what goes out of the rack, and for what goes back into it.
        """
        sizes = [len(group) for group in self.among(ranks)]
        slice_s = size_bytes / min(sizes) * beta_s
        alphas = 1 + (self.meets and len(sizes) > 1)
        inside_s = 2 * ((max(sizes) > 1) * alphas * alpha_s + (max(sizes) - 1) * slice_s)
        return inside_s + 2 * (len(sizes) - 1) * (alpha_s + slice_s / len(sizes))


def _inside(group: Sequence[int], slices: int, parts: int) -> Iterator[Transfer]:
    """Everybody begins with the rank behind it; slice k, `parts` chunks long, belongs to the k-th rank."""
    for turn in range(1, len(group)):
        for place, rank in enumerate(group):
            owner = (place + turn) % len(group)
            if owner < slices:
                yield Transfer(rank, group[owner], owner * parts, (owner + 1) * parts, "adds")


def _returned(transfer: Transfer) -> Transfer:
    """The total of what `transfer` has summed, the other way."""
    return transfer._replace(source=transfer.target, target=transfer.source, does="copies")
