"""What do algorithms have in common in which partners swap? They wait for each other, with long vectors."""

from collections.abc import Iterable, Iterator

from services.collectives.base import Round, Transfer
from services.collectives.rendezvous import Rendezvous


class Swapping(Rendezvous):
    """Ranks swap with one partner after another.

    Who is done with one begins with the next, and would take half of the link on which that one still waits for its
    own partner. Such delays feed each other: without tokens steps took up to twice as long.
    """

    @property
    def alphas(self) -> int:
        """Messages that follow each other in one round."""
        return 1 + self.meets

    def meeting(self, rounds: Iterable[Round]) -> Iterator[Round]:
        """The rounds, before each one with tokens by which all who will take say that they are ready."""
        for each in rounds:
            if self.meets:
                yield tuple(Transfer(t.target, t.source, t.first, t.last, "allows") for t in each)
            yield each
