"""TensorFlow's HierarchicalCopyAllReduce: along a fixed hierarchy to one rank, and back the same way."""

from typing import ClassVar, Literal

from services.collectives.base import Schedule, Transfer
from services.collectives.grouped import Grouped


class HierarchicalCopy(Grouped):
    """The first rank of each group sums its group, the first of all groups sums those; totals go back.

    Made for machines whose groups of devices have few links between them.
    """

    kind: Literal["hierarchical_copy"] = "hierarchical_copy"
    closed_form: ClassVar[str] = "5α + 2(g-1 + G-1)S·β, G groups of at most g ranks"
    eager_form: ClassVar[str] = "4α + 2(g-1 + G-1)S·β, G groups of at most g ranks"

    def schedule(self, ranks: int) -> Schedule:
        groups = self.among(ranks)
        inside = tuple((rank, group[0]) for group in groups for rank in group[1:])
        between = tuple((group[0], groups[0][0]) for group in groups[1:])
        levels = [pairs for pairs in (inside, between) if pairs]
        up = (tuple(Transfer(low, high, 0, 1, "adds") for low, high in pairs) for pairs in levels)
        down = (tuple(Transfer(high, low, 0, 1, "copies") for low, high in pairs) for pairs in reversed(levels))
        return Schedule(rounds=tuple(self.in_turn((*up, *down))))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """The links of leaders carry one vector per other member, those of the first leader one per other leader.

        Before it goes on with its own members, the first leader waits for the tokens of the others.
        """
        groups = self.among(ranks)
        others = [count - 1 for count in (max(map(len, groups)), len(groups)) if count > 1]
        token_s = alpha_s * (self.meets and len(others) > 1)
        return token_s + 2 * sum(alpha_s + count * size_bytes * beta_s for count in others)
