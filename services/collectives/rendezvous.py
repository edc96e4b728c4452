"""When do ranks wait for each other before long messages? Where two of them would share a link: MPI's rendezvous.

A message counts as sent when this host has taken it, which for a long one is well before it is there.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from pydantic import Field

from services.collectives.base import Collective, Round, Site, Transfer

EAGER_BYTES = 64 << 10  # the next partner's link carries that beside what it is still busy with


class Rendezvous(Collective, ABC):
    """A collective in which somebody sends to one rank after another."""

    eager_form: ClassVar[str]  # the closed form where nobody waits for a token

    rendezvous: bool | None = Field(
        None,
        description="ranks wait for each other where two messages would share a link; absent: with vectors of more "
        "than 64 KiB",
    )

    def settled(self, site: Site) -> Self:
        if self.rendezvous is not None:
            return self
        return self.model_copy(update={"rendezvous": site.vector_bytes > EAGER_BYTES})

    @property
    def formula(self) -> str:
        return self.closed_form if self.meets else self.eager_form

    @property
    def meets(self) -> bool:
        """Whoever is not told the vector's length is on the safe side."""
        return self.rendezvous is not False

    def in_turn(self, rounds: Sequence[Round]) -> Iterator[Round]:
        """The rounds, behind each one tokens to all who go on with somebody else: what they have sent is there.

        Otherwise the second message takes half of their link from the first: broadcast along a binomial tree took a
        fifth longer than its form, since the rank that has most to pass on is served first.
        """
        for number, each in enumerate(rounds, 1):
            yield each
            told = tuple(
                Transfer(t.target, t.source, t.first, t.last, "allows")
                for t in each
                if self.meets and _turns_away(t, rounds[number:])
            )
            if told:
                yield told


def _turns_away(transfer: Transfer, later: Sequence[Round]) -> bool:
    """Whether its source goes on with somebody else, and does not hear of its target before."""
    for each in later:
        targets = {other.target for other in each if other.source == transfer.source}
        if targets:
            return transfer.target not in targets
        if any(other.edge == transfer.edge[::-1] for other in each):
            return False
    return False
